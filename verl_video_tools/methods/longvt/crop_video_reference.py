"""The checks and frames of LongVT's published tool (examples/video_tools/mcp_server.py and qwen-vl-utils 0.0.11).

Only `compat="reference"` uses them. Unlike the published tool, which opens whatever file a call names, a call that does
not name the row's video finds no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from verl_video_tools.methods import toolkit as vt

_TIMES = ("start_time", "end_time")


def checked_times(arguments: Mapping[str, Any], video_path: str, info: vt.VideoInfo) -> tuple[float, float]:
    """Start and end of a call in seconds, checked in the published order.

    Raises:
        CallRejected: its message starts with the name of the check that failed, which is that of the template by which
            the model reads it (`methods.longvt.messages`).
    """
    malformed, out_of_range = vt.CallErrorCode.MALFORMED_CALL, vt.CallErrorCode.OUT_OF_RANGE
    path = arguments.get("video_path", "")
    _require(isinstance(path, str), malformed, "wrong_types", arguments)
    times = {name: _number(arguments[name]) for name in _TIMES if name in arguments}
    _require(None not in times.values(), malformed, "wrong_types", arguments)
    start, end = times.get("start_time") or 0.0, times.get("end_time") or 0.0
    duration = published_duration(info)
    for holds, code, name in (
        ("video_path" in arguments, malformed, "path_missing"),
        ("start_time" in arguments, malformed, "start_missing"),
        ("end_time" in arguments, malformed, "end_missing"),
        (bool(path.strip()), malformed, "path_empty"),
        (not start < 0, out_of_range, "start_negative"),
        (not end <= start, vt.CallErrorCode.REVERSED_SEGMENT, "end_not_after_start"),
        (path == video_path, vt.CallErrorCode.WRONG_VIDEO, "file_missing"),
        (not start >= duration, out_of_range, "start_beyond"),
        (not end > duration, out_of_range, "end_beyond"),
    ):
        _require(holds, code, name, arguments)
    return start, end


def format_values(arguments: Mapping[str, Any], info: vt.VideoInfo | None) -> dict[str, str]:
    """What an error may state, as the published tool writes it."""
    times = {name: _number(arguments.get(name)) for name in _TIMES}
    return {
        "start": str(times["start_time"]),
        "end": str(times["end_time"]),
        "duration": "" if info is None else f"{published_duration(info):.2f}",
        "path": str(arguments.get("video_path")),
        "arguments": str(dict(arguments)),
    }


def published_duration(info: vt.VideoInfo) -> float:
    """Seconds, as the published tool computes them."""
    return info.num_frames / info.average_fps


def published_indices(start: float, end: float, info: vt.VideoInfo, fps: float, max_frames: int) -> tuple[int, ...]:
    """Frames of a segment: both ends included, an even number, at least 2; none where it holds no two frames.

    Positions are spread in float32 from both ends, as `torch.linspace` does, and rounded half to even.
    """
    if not math.isfinite(end - start):  # text may say "nan", which passes the published checks
        return ()
    first = math.ceil(start * info.average_fps)
    last = min(math.floor(end * info.average_fps), info.num_frames - 1)
    total = last - first + 1
    if total < 2:
        return ()
    wanted = min(max(total / info.average_fps * fps, 2), min(max_frames, total) // 2 * 2, total)
    count = int(wanted) // 2 * 2
    steps = np.arange(count, dtype=np.float32)
    step = np.float32(last - first) / np.float32(count - 1)
    forward, backward = np.float32(first) + step * steps, np.float32(last) - step * (count - 1 - steps)
    positions = np.where(steps < count // 2, forward, backward)
    return tuple(int(position) for position in np.rint(positions))


def _require(holds: bool, code: vt.CallErrorCode, name: str, arguments: Mapping[str, Any]) -> None:
    if not holds:
        times = ", ".join(f"{key}={arguments[key]!r:.80}" for key in _TIMES if key in arguments)
        raise vt.CallRejected(code, f"{name}: {times}")


def _number(value: Any) -> float | None:
    """A number as the published tool's server reads one: also from text, and from true and false; None for others."""
    if not isinstance(value, bool | int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
