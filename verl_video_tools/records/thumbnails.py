"""Thumbnails of recorded frames, decoded again from the rows' video files."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from PIL import Image

from verl_video_tools.core.errors import VideoError
from verl_video_tools.core.types import Box, FrameRecord, FrameRequest, PixelBox, Region, Trajectory, VideoInfo
from verl_video_tools.video import Video, fit_box, linspace_indices
from verl_video_tools.video.source import Deadline

SIDE_PIXELS = 128
"""Longer side of a thumbnail at most."""
MAX_THUMBNAILS = 4000
"""Thumbnails of one page; at 2 to 4 KB each they stay below 16 MB."""
_FRAMES_PER_CALL = (16, 8, 4, 2, 1)
_DEADLINE_SECONDS = 60.0

Part = tuple[int, PixelBox | None]
"""A frame's index, and a region of it; None for the whole frame."""


@dataclass(frozen=True)
class Thumbnails:
    """The images that could be decoded.

    Attributes:
        jpeg_of: for each path of a video, JPEG files of whole frames and of parts. A frame of which only a part was
            shown has both.
        notes: for each path without images, the reason.
    """

    jpeg_of: Mapping[str, Mapping[Part, bytes]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def of_frames(self, path: str, frames: Iterable[FrameRecord]) -> Iterator[tuple[FrameRecord, bytes]]:
        """Frames of a video with their JPEG files, or those of their parts. Frames without an image are skipped."""
        jpegs = self.jpeg_of.get(path, {})
        for frame in frames:
            if (frame.index, frame.region) in jpegs:
                yield frame, jpegs[frame.index, frame.region]

    def count(self) -> int:
        """Number of images."""
        return sum(map(len, self.jpeg_of.values()))


def decode_thumbnails(
    rollouts: Iterable[tuple[str, Trajectory]],
    progress: Callable[[int, int], None] | None = None,
    max_thumbnails: int = MAX_THUMBNAILS,
) -> Thumbnails:
    """Decode each frame that rollouts were shown once per video, and each part of a frame.

    If there are too many, each call keeps fewer frames, evenly spread, and finally only the first videos have any. A
    video that cannot be read, or has changed since it was recorded, gets a note.

    Args:
        rollouts: paths of videos, with what was recorded on them.
        progress: called with the number of videos done and in total.
    """
    videos: dict[str, list[Trajectory]] = defaultdict(list)
    for path, trajectory in rollouts:
        if trajectory.video is not None:
            videos[path].append(trajectory)
    parts_of: dict[str, list[Part]] = {}
    for frames_per_call in _FRAMES_PER_CALL:
        parts_of = {path: _parts(trajectories, frames_per_call) for path, trajectories in videos.items()}
        if sum(map(len, parts_of.values())) <= max_thumbnails:
            break

    jpeg_of: dict[str, dict[Part, bytes]] = {}
    notes: dict[str, str] = {}
    num_left = max_thumbnails
    for number, (path, parts) in enumerate(parts_of.items(), start=1):
        if len(parts) > num_left:
            notes[path] = f"the page already holds as many as it may ({max_thumbnails} at most)"
        else:
            recorded = {trajectory.video for trajectory in videos[path] if trajectory.video is not None}
            try:
                jpeg_of[path] = _decode(path, parts, recorded)
                num_left -= len(parts)
            except VideoError as error:
                notes[path] = f"{type(error).__name__}: {error}"
        if progress is not None:
            progress(number, len(parts_of))
    return Thumbnails(jpeg_of, notes)


def _parts(trajectories: Sequence[Trajectory], frames_per_call: int) -> list[Part]:
    whole: set[int] = set()
    regions: set[tuple[int, PixelBox]] = set()
    for trajectory in trajectories:
        calls = trajectory.executed_calls()
        exchanged = (exchange.frames for call in calls for exchange in call.model_calls)
        verified = trajectory.verification.frames if trajectory.verification is not None else []
        for frames in (trajectory.initial_frames, *(call.frames for call in calls), *exchanged, verified):
            for position in linspace_indices(0, len(frames) - 1, frames_per_call) if frames else ():
                frame = frames[position]
                whole.add(frame.index)
                if frame.region is not None:
                    regions.add((frame.index, frame.region))
    return [*((index, None) for index in sorted(whole)), *sorted(regions)]


def _decode(path: str, parts: Sequence[Part], recorded: set[VideoInfo]) -> dict[Part, bytes]:
    with Video(path, _DEADLINE_SECONDS) as video:
        if any(info.num_frames != video.info.num_frames for info in recorded):
            raise VideoError(f"{path} has changed since it was recorded: it now has {video.info.num_frames} frames")
        if not parts:
            return {}
        # The whole frames are one request, as all have one size.
        size = fit_box(video.info.width, video.info.height, SIDE_PIXELS, SIDE_PIXELS)
        whole = FrameRequest(*size, indices=tuple(index for index, region in parts if region is None))
        requests = [whole, *(_part_request(index, region) for index, region in parts if region is not None)]
        batches = video.decode_many(requests, Deadline(_DEADLINE_SECONDS, f"{path}: decode thumbnails"))
    jpegs = (_jpeg(pixels_HWC) for batch in batches for pixels_HWC in batch.frames_THWC)
    return dict(zip(parts, jpegs, strict=True))


def _part_request(index: int, region: PixelBox) -> FrameRequest:
    width, height = fit_box(region.width, region.height, SIDE_PIXELS, SIDE_PIXELS)
    return FrameRequest(width, height, indices=(index,), region=Region(Box(*region)))


def _jpeg(pixels_HWC: npt.NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels_HWC).save(file, "JPEG", quality=70)
    return file.getvalue()
