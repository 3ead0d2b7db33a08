"""VideoZoomer's zoom: frames of a segment in seconds, at a rate that the model chooses (paper 3.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.video.resize import fit_pixels
from verl_video_tools.video.sampling import not_before, uniform_seconds

_TOLERANCE = 1e-6
"""Frames; 1 fps from 0.2 s to 8.2 s are 8 frames, not 7.999999999999999."""

UNREADABLE = (TypeError, ValueError, LookupError, OverflowError)
"""What `numbers_reference` raises."""


@dataclass(frozen=True, kw_only=True)
class VideoZoom:
    """Shows ``int(fps * (end - start))`` frames spread evenly from `start` to `end`, both shown, each frame once.

    So the frames lie a little further apart than `fps` says, as in the published code, and a segment that holds fewer
    frames shows those that it has, however high the rate.

    Attributes:
        max_frames: frames per call; `fps * (end - start)` must not exceed it (paper 3.1).
        max_pixels: a frame is shrunk to this area, keeping its aspect ratio, and never enlarged.
        compat: `reference` truncates before it compares with the limit, clamps segments to the video, repeats frames
            where the rate is higher than the video's, and shows nothing for a segment too short for a frame, as the
            published code does.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "video_zoom"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows frames of a segment at a chosen rate, then lists their times in "
            "the order shown. Too many frames, (end - start) * fps, are refused with the limit."
        ),
        parameters={
            "segment": ("array", "Start and end in seconds, [start, end], within the video."),
            "fps": ("number", "Frames per second to show."),
        },
    )

    max_frames: int
    max_pixels: int
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        for name in ("max_frames", "max_pixels"):
            vt.require(self, name, getattr(self, name) >= 1, "at least 1")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"segment": [start_seconds, end_seconds], "fps": frames_per_second}``.

        Raises:
            CallRejected: `malformed_call`, `reversed_segment`, `out_of_range`, `segment_too_short` or
                `too_many_frames`; the message states the duration or the limit.
        """
        info = context.info
        width, height = fit_pixels(info.width, info.height, self.max_pixels, context.envelope)
        if self.compat == "reference":
            indices = self._indices_reference(*_numbers_or_refusal(arguments), info)
            return vt.ToolPlan(frames=vt.FrameRequest(width=width, height=height, indices=indices) if indices else None)
        start, end, fps = _numbers(arguments)
        if start <= end:
            start, end = (vt.snap_to_end(seconds, info.duration_seconds) for seconds in (start, end))
        count = self._count(start, end, fps, info.duration_seconds)
        seconds = not_before(uniform_seconds(start, end, count), info.duration_seconds)
        return vt.ToolPlan(frames=vt.FrameRequest(width=width, height=height, seconds=seconds, unique=True))

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A zoom of the whole video."""
        width, height = fit_pixels(info.width, info.height, self.max_pixels, envelope)
        seconds = uniform_seconds(0.0, info.duration_seconds, self.max_frames)
        return vt.FrameRequest(width=width, height=height, seconds=not_before(seconds, info.duration_seconds))

    def _count(self, start: float, end: float, fps: float, duration_seconds: float) -> int:
        if fps <= 0:
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"fps must be above 0, got {fps:g}")
        if end < start:
            raise vt.CallRejected(
                vt.CallErrorCode.REVERSED_SEGMENT,
                f"segment [{start:g}, {end:g}] ends before it starts; give [start, end]",
            )
        if start < 0 or end > duration_seconds:
            raise vt.CallRejected(
                vt.CallErrorCode.OUT_OF_RANGE,
                f"segment [{start:g}, {end:g}] leaves the video, "
                f"which lasts from 0 to {vt.format_seconds(duration_seconds)} s",
            )
        asked = fps * (end - start)
        if asked > self.max_frames + _TOLERANCE:
            raise self._too_many(asked, start, end, fps)
        count = math.floor(asked + _TOLERANCE)
        if count < 1:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT,
                f"segment [{start:g}, {end:g}] holds no frame at {fps:g} fps; make it longer or raise fps",
            )
        return count

    def _indices_reference(self, start: float, end: float, fps: float, info: vt.VideoInfo) -> tuple[int, ...]:
        try:
            count = frames_asked_reference(start, end, fps)
            if count > self.max_frames:
                raise self._too_many(count, start, end, fps)
            first, last = int(start * info.average_fps), int(end * info.average_fps)
        except (OverflowError, ValueError) as error:  # not finite
            raise vt.CallRejected(vt.CallErrorCode.OUT_OF_RANGE, str(error)) from error
        first = min(max(first, 0), info.num_frames - 1)
        last = min(max(last, first), info.num_frames - 1)
        try:
            return tuple(int(index) for index in np.linspace(first, last, count).astype(np.int64))
        except ValueError as error:  # a negative number of frames: NumPy's words are what the published code says
            raise vt.CallRejected(vt.CallErrorCode.REVERSED_SEGMENT, str(error)) from error

    def _too_many(self, asked: float, start: float, end: float, fps: float) -> vt.CallRejected:
        return vt.CallRejected(
            vt.CallErrorCode.TOO_MANY_FRAMES,
            f"{fps:g} fps over [{start:g}, {end:g}] are {asked:g} frames; a zoom shows at most {self.max_frames}: "
            "shorten the segment or lower fps",
        )


def _numbers(arguments: Mapping[str, Any]) -> tuple[float, float, float]:
    """Start, end and rate as finite numbers; digits in quotes are numbers, too."""
    segment = arguments.get("segment")
    if not isinstance(segment, list | tuple) or len(segment) != 2:
        raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"segment must be [start, end], got {segment!r:.80}")
    start, end = (_number("segment", value) for value in segment)
    return start, end, _number("fps", arguments.get("fps"))


def _number(name: str, value: Any) -> float:
    number = vt.finite_number(value, read_text=True)
    if number is None:
        raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"{name} takes finite numbers, got {value!r:.80}")
    return number


def numbers_reference(arguments: Mapping[str, Any]) -> tuple[float, float, float]:
    """Start, end and rate as the published environment reads them.

    Raises:
        TypeError, ValueError, LookupError, OverflowError: they cannot be read; the model reads the text.
    """
    segment = arguments["segment"]
    return float(segment[0]), float(segment[1]), float(arguments["fps"])


def frames_asked_reference(start: float, end: float, fps: float) -> int:
    """The number of frames that the published environment takes a request for.

    Raises:
        OverflowError, ValueError: the numbers are not finite.
    """
    return int(fps * (end - start))


def _numbers_or_refusal(arguments: Mapping[str, Any]) -> tuple[float, float, float]:
    try:
        return numbers_reference(arguments)
    except UNREADABLE as error:
        raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"cannot read segment and fps: {error!r:.80}") from error
