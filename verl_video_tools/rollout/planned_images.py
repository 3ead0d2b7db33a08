"""Pictures of frames of a video that may not be there: what they cost is asked before there is a file."""

from __future__ import annotations

from verl_video_tools.core.types import FrameRecord, FrameRequest, ImagePart, VideoInfo


def planned_images(request: FrameRequest | None, info: VideoInfo) -> tuple[ImagePart, ...]:
    """Pictures of a request without pixels, for asking what they would cost: right in number and size, and in their
    labels as far as frames are evenly spaced."""
    if request is None:
        return ()
    seconds = request.seconds or tuple(index / info.average_fps for index in request.indices or ())
    indices = request.indices or tuple(min(round(time * info.average_fps), info.num_frames - 1) for time in seconds)
    return tuple(
        ImagePart(FrameRecord(index, time_seconds, request.width, request.height))
        for index, time_seconds in zip(indices, seconds, strict=True)
    )
