"""What is wrong with the frames that a plan asks for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from verl_video_tools.core.types import FrameRequest, VideoInfo


def request_fault(request: FrameRequest | None, info: VideoInfo) -> str | None:
    """Why frames cannot be shown as a plan says, or not in order; None where they can."""
    if request is None:
        return None
    if request.indices is not None:
        places, last = [float(index) for index in request.indices], float(info.num_frames - 1)
        unit = "index"
    else:
        places, last, unit = list(request.seconds or ()), info.duration_seconds, "time"
    if outside := [place for place in places if not 0 <= place <= last]:
        return f"the {unit} {outside[0]:g} is not within 0 to {last:g}"
    if any(before > after for before, after in pairwise(places)):
        return "frames are not in order of time"
    if places and min(request.width, request.height) < 1:
        return f"a size of {request.width}x{request.height} pixels"
    return None


def places_of(request: FrameRequest, info: VideoInfo) -> tuple[list[float], list[float]]:
    """Times in seconds and indices of the frames of a plan, as if they were evenly spaced in time."""
    if request.indices is not None:
        return [index / info.average_fps for index in request.indices], [float(index) for index in request.indices]
    times = list(request.seconds or ())
    return times, [time * info.average_fps for time in times]


def within(places: Sequence[float], stretch: tuple[float, float], slack: float) -> bool:
    return all(stretch[0] - slack <= place <= stretch[1] + slack for place in places)
