"""examples/inspect_trajectory: the script runs from end to end on a recorded rollout, and its cells are cells."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from tests.examples.conftest import EXAMPLES
from tests.verl_plugin.harness import model_dir, tokenizer
from tests.videos.files import read_number, write_video
from tests.viewer_page import line

SCRIPT = EXAMPLES / "inspect_trajectory" / "inspect_trajectory.py"


def record(tmp_path: Path) -> Path:
    """A step of two rollouts, the second with its tokens."""
    video = write_video(tmp_path / "video.mp4", num_frames=50, fps=5)
    rollouts = [line(0, score=0.0, path=str(video)), line(1, score=2.0, path=str(video))]
    said, read = (tokenizer().encode(text, add_special_tokens=False) for text in ("<think>look</think>", "2.0s"))
    rollouts[1]["sequences"] = [
        {
            "prompts": [1, 2, 3],
            "responses": said + read + said,
            "response_mask": [1] * len(said) + [0] * len(read) + [1] * len(said),
            "rollout_log_probs": [-0.5] * len(said) + [0.0] * len(read) + [-0.25] * len(said),
        }
    ]
    folder = tmp_path / "trajectories"
    folder.mkdir()
    lines = [json.dumps({**rollout, "trajectory": rollout["trajectory"].to_dict()}) for rollout in rollouts]
    (folder / "step_000003.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_the_script_shows_the_best_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECORDS", str(record(tmp_path)))
    monkeypatch.setenv("TOKENIZER", model_dir())
    names = runpy.run_path(str(SCRIPT))
    printed = capsys.readouterr().out
    assert printed.startswith("2 rollouts\nlongvt, step 3: What is shown?\nended by answer, answer 'B', truth 'B'\n")
    assert "crop_video {'start_time': 2.0} -> 2.0 s, 2.4 s\n" in printed
    assert "crop_video {'start_time': 99.0} -> out_of_range: beyond the end\n" in printed
    assert "rollout 0: score 0.0, advantage 0.25\nrollout 1: score 2.0, advantage 0.25\n" in printed
    masks = re.findall(r"(?m)^(trained|masked ) +\d+ tokens(?:, mean log-probability (\S+))? '(.*)'$", printed)
    assert masks == [
        ("trained", "-0.500", "<think>look</think>"),
        ("masked ", "", "2.0s"),
        ("trained", "-0.250", "<think>look</think>"),
    ]
    sheet = np.asarray(names["sheet"])
    width = sheet.shape[1] // 5
    pictures = [sheet[:, position * width : (position + 1) * width] for position in range(5)]
    assert [read_number(picture_HWC) for picture_HWC in pictures] == [0, 25, 49, 10, 12]


def test_every_part_is_a_cell() -> None:
    cells = re.split(r"^# %%", SCRIPT.read_text(), flags=re.MULTILINE)[1:]
    assert len(cells) == 12 and [cell.startswith(" [markdown]") for cell in cells] == [True, False] * 6
