"""Replays of all scripts, as text lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.judge_server import JudgeServer
from tests.methods.doubles import ScoringRetriever
from tests.recorded.scripts import VIDEOS, Script, scripts
from tests.videos.files import write_grey
from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.replay import replay
from verl_video_tools.services.judge import JudgeConfig


def replay_lines(folder: Path) -> Iterator[str]:
    """One line of JSON per script: its `id`, and what `vvt replay` prints, or the `error` that it raises.

    Args:
        folder: an empty one for videos, prompts and templates; its path is replaced by `FOLDER` in the lines.
    """
    for name, (num_frames, fps) in VIDEOS.items():
        write_grey(folder / f"{name}.mp4", num_frames, fps, 64, 36)
    with JudgeServer() as judge:
        for script in scripts():
            line: dict[str, Any] = {"id": script.id}
            try:
                line["replay"] = replay_script(script, folder, judge.base_url)
            except VideoToolsError as error:
                line["error"] = f"{type(error).__name__}: {error}"
            yield json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
                str(folder), "FOLDER"
            )


def replay_script(script: Script, folder: Path, judge_base_url: str) -> dict[str, Any]:
    """What `replay` gives for a script, beside the videos of `VIDEOS` in a folder."""
    video = str(folder / f"{script.video}.mp4")
    settings = dict(script.settings)
    # One file per text: a process reads each path once.
    for name, text in (("prompt_file", script.prompt), ("templates_file", script.templates)):
        if text is not None:
            path = folder / f"{script.method}_{len(text)}_{name}.txt"
            path.write_text(text)
            settings[name] = str(path)
    return replay(
        script.method,
        video,
        script.question,
        script.answer,
        [turn.replace("VIDEO", video) for turn in script.turns],
        extra=script.extra,
        settings=settings,
        judge=JudgeConfig(base_url=judge_base_url) if script.judge else None,
        retriever=ScoringRetriever() if script.retriever else None,
    )
