"""LongVT's tool: a segment of the video, given in seconds, at one frame per second (paper 3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar

import numpy as np

from verl_video_tools.methods import toolkit as vt


@dataclass(frozen=True, kw_only=True)
class CropVideo:
    """Shows frames between `start_time` and `end_time` seconds, both ends included.

    None begins after the end, nor before the one that is on screen at the start.
    The video is the row's. A call may name it, by path or file name, as checkpoints trained on the published prompt do;
    a call that names another one is refused, and nothing that a model writes is ever opened.

    Attributes:
        fps: frames shown per second of video.
        max_frames: frames shown per call at most; a longer segment is sampled more sparsely.
        min_pixels, max_pixels: area of a frame (code: 28 x 28 and 50,176).
        compat: `reference` checks calls and chooses frames as the published tool does: the path has to be given as it
            was given, and numbers may be written as strings.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "crop_video"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows its frames from start_time to end_time, then lists their times "
            "in the order shown."
        ),
        parameters={
            "video_path": ("string", "Path of the video, if it was given with the question; may be left out."),
            "start_time": ("number", "Where the part starts, in seconds from the start of the video."),
            "end_time": ("number", "Where the part ends, in seconds; after start_time, within the video."),
        },
        optional=("video_path",),
        frame_label="{frame.timestamp_seconds:.1f} s",
    )

    fps: float
    max_frames: int
    min_pixels: int
    max_pixels: int
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        vt.require(self, "fps", 0.0 < self.fps < math.inf, "a finite number above 0")
        vt.require(self, "max_frames", self.max_frames >= 2, "at least 2")
        vt.require(self, "min_pixels", self.min_pixels >= 1, "at least 1")
        vt.require(self, "max_pixels", self.max_pixels >= self.min_pixels, f"at least min_pixels, {self.min_pixels}")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_time": seconds, "end_time": seconds, "video_path"?: str}``; others are ignored.

        The result repeats the segment as numbers, ``{"start_time": float, "end_time": float}``.

        Raises:
            CallRejected: `malformed_call`, `wrong_video`, `out_of_range`, `reversed_segment` (also an empty one), or
                `segment_too_short` for one in which a single frame is on screen.
            VideoError: the file cannot be asked which frames are shown when.
        """
        if self.compat == "reference":
            return self._plan_reference(arguments, context)
        _check_video(arguments.get("video_path"), context.sample.video_path)
        start, end = (vt.seconds_argument(arguments, name) for name in ("start_time", "end_time"))
        duration = context.info.duration_seconds
        if start < 0 or start >= duration:
            raise vt.CallRejected(
                vt.CallErrorCode.OUT_OF_RANGE,
                f"start_time {start:g} must be from 0 to below {vt.format_seconds(duration)} seconds",
            )
        if end <= start:
            raise vt.CallRejected(
                vt.CallErrorCode.REVERSED_SEGMENT, f"end_time {end:g} must be after start_time {start:g}"
            )
        end = vt.snap_to_end(end, duration)
        if end > duration:
            raise vt.CallRejected(
                vt.CallErrorCode.OUT_OF_RANGE,
                f"end_time {end:g} is after the end of the video ({vt.format_seconds(duration)} seconds)",
            )
        first, last = await context.index_at(start), await context.index_at(end)
        if first == last:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT, f"there are no two frames between {start:g} and {end:g} seconds"
            )
        size = vt.frame_size(context.info, self.min_pixels, self.max_pixels, context.envelope)
        if last - first == 1:  # both ends may be nearest to the same one
            request = vt.FrameRequest(width=size[0], height=size[1], indices=(first, last))
        else:
            times = segment_seconds(start, end, context.info, self.fps, min(self.max_frames, last - first + 1))
            request = nearest_frames(times, size, within=(start, end))
        return vt.ToolPlan(frames=request, result={"start_time": start, "end_time": end})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A crop of the whole video."""
        size = vt.frame_size(info, self.min_pixels, self.max_pixels, envelope)
        return nearest_frames(video_seconds(info, self.fps, self.max_frames), size)

    def frame_numbers(self, start: float, end: float, info: vt.VideoInfo) -> list[int]:
        """Numbers of the frames of a crop, ascending, in a video of an even rate."""
        first, last = (min(int(time * info.average_fps + 1e-6), info.num_frames - 1) for time in (start, end))
        if last - first <= 1:
            return [first, last]
        times = segment_seconds(start, end, info, self.fps, min(self.max_frames, last - first + 1))
        return sorted({min(int(time * info.average_fps + 0.5 + 1e-6), last) for time in times})

    def _plan_reference(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        start, end = checked_times(arguments, context.sample.video_path, context.info)
        indices = published_indices(start, end, context.info, self.fps, self.max_frames)
        if not indices:
            raise vt.CallRejected(vt.CallErrorCode.SEGMENT_TOO_SHORT, f"too_short: start_time={start}, end_time={end}")
        width, height = vt.frame_size(context.info, self.min_pixels, self.max_pixels, context.envelope)
        return vt.ToolPlan(
            frames=vt.FrameRequest(width=width, height=height, indices=indices),
            result={"start_time": start, "end_time": end},
        )


def segment_seconds(start: float, end: float, info: vt.VideoInfo, fps: float, max_frames: int) -> tuple[float, ...]:
    """Times to look at for a segment, spread evenly over it, first and last frame included.

    Each means the frame that begins nearest to it. The rule is that of qwen-vl-utils, by which the published
    checkpoints were trained (https://github.com/QwenLM/Qwen2.5-VL): `fps` frames per second, at least 2, at most
    `max_frames`, an even number of them.

    Args:
        start, end: seconds, 0 <= start < end <= duration.
        max_frames: at most the frames that are shown in the segment.

    Returns:
        Seconds in ascending order; the start alone where there is a single frame.
    """
    last = max(start, min(end, info.last_seconds))
    num_frames = math.floor((last - start) * info.average_fps + 1e-6) + 1
    count = min(max(num_frames / info.average_fps * fps, 2.0), max_frames)
    return tuple(np.linspace(start, last, max(2 * math.floor(count / 2.0 + 1e-9), 1)).tolist())


def nearest_frames(
    seconds: tuple[float, ...], size: tuple[int, int], within: tuple[float, float] | None = None
) -> vt.FrameRequest:
    """The frames that begin nearest to times, each once: where the rate varies, several times may mean one frame.

    Args:
        size: width and height in pixels.
        within: as of `FrameRequest`.
    """
    width, height = size
    return vt.FrameRequest(width=width, height=height, seconds=seconds, rounding="nearest", unique=True, within=within)


def video_seconds(info: vt.VideoInfo, fps: float, max_frames: int) -> tuple[float, ...]:
    """Times to look at for a whole video, as `segment_seconds` chooses them."""
    return segment_seconds(0.0, info.duration_seconds, info, fps, min(max_frames, info.num_frames))


def _check_video(named: Any, video_path: str) -> None:
    if named is None:
        return
    if not isinstance(named, str) or not named:
        raise vt.CallRejected(
            vt.CallErrorCode.MALFORMED_CALL, f"video_path must be text, and may be left out; got {named!r:.80}"
        )
    if named.removeprefix("file://") not in (video_path, PurePath(video_path).name):
        # The right name is not reported: it may give the answer away.
        raise vt.CallRejected(
            vt.CallErrorCode.WRONG_VIDEO, f"{named[:80]!r} is not the video of this question; leave video_path out"
        )


# --------------------------------------------------------------------------------------------------- the published tool
# Checks and frames of examples/video_tools/mcp_server.py and qwen-vl-utils 0.0.11, for `compat="reference"` alone. The
# published tool opens whatever file a call names; here a call that does not name the row's video finds no file.

_TIMES = ("start_time", "end_time")


def checked_times(arguments: Mapping[str, Any], video_path: str, info: vt.VideoInfo) -> tuple[float, float]:
    """Start and end of a call in seconds, checked in the published order.

    Raises:
        CallRejected: its message starts with the name of the check that failed, which is that of the template by which
            the model reads it (`methods.longvt.method`).
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
    target = min(max(total / info.average_fps * fps, 2), min(max_frames, total) // 2 * 2, total)
    count = int(target) // 2 * 2
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
