"""Prompts of users: read once per process and known by their digest."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

import pytest

from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompts import file_beside, prompt_digest, read_prompt
from verl_video_tools.core.types import PixelEnvelope, Sample, VideoInfo, content_text
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import METHOD_NAMES, get_method

INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=96, height=64)
FILLED = {name: "{call_frames}" for name in METHOD_NAMES if name != "compose"} | {
    "framethinker": "{initial_frames} or {call_frames}",
    "direct": "{initial_frames}",
}
"""Values that a method's prompt may ask for."""


@pytest.mark.parametrize("name", METHOD_NAMES)
async def test_editing_the_file_changes_no_run(name: str, tmp_path: Path, make_video: MakeVideo) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Look closely.")
    method, sample = get_method(name, prompt_file=str(prompt)), Sample("Which?", "A", make_video(300), "mc")
    digest = prompt_digest(prompt)
    prompt.write_text("Say B.")
    assert content_text(method.prompt(sample, INFO, ())[0].content) == "Look closely."
    trajectory = await execute(method, sample, ["B"])
    assert trajectory.prompt_digest == digest == hashlib.sha256(b"Look closely.").hexdigest()[:16]
    prompt.unlink()
    assert read_prompt("", "", prompt) == "Look closely."
    assert (await execute(get_method(name), sample, ["B"])).prompt_digest is None


@pytest.mark.parametrize("name", FILLED)
def test_placeholders_are_filled(name: str, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(f"{FILLED[name]} {{other}}")
    method = get_method(name, prompt_file=str(prompt))
    images = method.plan_initial_frames(INFO, Sample("Which?", "A", "v.mp4", "mc"), PixelEnvelope())
    system = content_text(method.prompt(Sample("Which?", "A", "v.mp4", "mc"), INFO, ())[0].content)
    assert "frames}" not in system and system.endswith(" {other}") and len(images) > 0


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_file_that_cannot_be_read_is_told_before_a_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read prompt_file"):
        get_method(name, prompt_file=str(tmp_path / "none.txt"))


def test_a_class_of_a_single_module_has_files_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outside method may be one module that is in no package."""
    (tmp_path / "single_module_method.py").write_text("class Own: ...\n")
    (tmp_path / "prompt.txt").write_text("Look again.")
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("single_module_method").Own
    assert file_beside(own, "prompt.txt").read_text() == "Look again."
