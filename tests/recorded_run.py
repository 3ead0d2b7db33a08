"""Hand-made runs on disk: records of training and held-out rollouts, and verl's log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import CallError
from verl_video_tools.core.types import CallRecord, FrameRecord, StopReason, Trajectory, Turn, VideoInfo


def rollout(
    group: str,
    score: float,
    *,
    method: str = "longvt",
    calls: Sequence[CallRecord] = (),
    stop: StopReason = StopReason.ANSWER,
    flags: Sequence[str] = (),
    **components: float,
) -> dict[str, Any]:
    """A recorded line, but for its step. The initial frames are two frames."""
    trajectory = Trajectory(
        method=method,
        question="What is shown?",
        video=VideoInfo(10.0, 50, 5.0, 64, 36),
        initial_frames=[FrameRecord(index, index / 5, 64, 36) for index in (0, 25)],
        turns=[Turn("look", calls=list(calls)), Turn("B", answer="B")],
        stop_reason=stop,
        answer="B",
        flags=list(flags),
    )
    return {
        "uid": group,
        "session_id": 0,
        "extra_info": {"video_path": "/no/video.mp4"},
        "reward": {"score": score, "acc": float(score > 0), **components},
        "num_generated_tokens": 10,
        "trajectory": trajectory.to_dict(),
    }


def looked(tool: str, num_frames: int) -> CallRecord:
    return CallRecord(tool, {}, ok=True, frames=[FrameRecord(index, index / 5, 64, 36) for index in range(num_frames)])


def refused(tool: str, code: str) -> CallRecord:
    return CallRecord(tool, {}, ok=False, error=CallError(code, "no"))


def write_run(
    folder: Path,
    training: Mapping[int, Sequence[Mapping[str, Any]]],
    validation: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
    log: Mapping[int, Mapping[str, float | None]] | None = None,
) -> Path:
    """The folder of a run, by step."""
    records = folder / "trajectories"
    records.mkdir(parents=True, exist_ok=True)
    for prefix, steps in (("step", training), ("val_step", validation or {})):
        for step, lines in steps.items():
            text = "".join(json.dumps({"step": step, **line}) + "\n" for line in lines)
            (records / f"{prefix}_{step:06d}.jsonl").write_text(text)
    if log is not None:
        text = "".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in log.items())
        (folder / "metrics.jsonl").write_text(text)
    return folder
