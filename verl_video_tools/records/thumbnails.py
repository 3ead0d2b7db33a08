"""Small images of recorded frames, decoded again from the rows' video files."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from PIL import Image

from verl_video_tools.core.errors import VideoError
from verl_video_tools.core.types import FrameRecord, Trajectory, VideoInfo
from verl_video_tools.video import Video, fit_box, linspace_indices

SIDE_PIXELS = 128
"""Longer side of a thumbnail at most."""
MAX_THUMBNAILS = 4000
"""Thumbnails of one page; at 2 to 4 KB each they stay below 16 MB."""
_FRAMES_PER_LOOK = (16, 8, 4, 2, 1)
_DEADLINE_SECONDS = 60.0


@dataclass(frozen=True)
class Thumbnails:
    """What could be decoded."""

    jpeg_of: Mapping[str, Mapping[int, bytes]] = field(default_factory=dict)
    """Video path to frame index to JPEG file."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Video path to why it has none."""


def decode_thumbnails(
    rollouts: Iterable[tuple[str, Trajectory]],
    progress: Callable[[int, int], None] | None = None,
    max_thumbnails: int = MAX_THUMBNAILS,
) -> Thumbnails:
    """Thumbnails of the frames that rollouts were shown; each frame of a video once, however often it was shown.

    Where there are too many frames, each look keeps fewer of them, evenly spread, and at last only the first
    videos have any. A video that cannot be read, or is not the recorded one, gets a note.

    Args:
        rollouts: video paths with what was recorded on them.
        progress: called with the numbers of videos done and wanted.
    """
    videos: dict[str, list[Trajectory]] = defaultdict(list)
    for path, trajectory in rollouts:
        if trajectory.video is not None:
            videos[path].append(trajectory)
    wanted: dict[str, list[int]] = {}
    for frames_per_look in _FRAMES_PER_LOOK:
        wanted = {path: _indices(trajectories, frames_per_look) for path, trajectories in videos.items()}
        if sum(map(len, wanted.values())) <= max_thumbnails:
            break

    jpeg_of: dict[str, dict[int, bytes]] = {}
    notes: dict[str, str] = {}
    num_left = max_thumbnails
    for number, (path, indices) in enumerate(wanted.items(), start=1):
        if len(indices) > num_left:
            notes[path] = f"the page already holds as many as it may ({max_thumbnails} at most)"
        else:
            recorded = {trajectory.video for trajectory in videos[path] if trajectory.video is not None}
            try:
                jpeg_of[path] = _decode(path, indices, recorded)
                num_left -= len(indices)
            except VideoError as error:
                notes[path] = f"{type(error).__name__}: {error}"
        if progress is not None:
            progress(number, len(wanted))
    return Thumbnails(jpeg_of, notes)


def _indices(trajectories: Sequence[Trajectory], frames_per_look: int) -> list[int]:
    indices: set[int] = set()
    for trajectory in trajectories:
        calls = trajectory.executed_calls()
        asked = (exchange.frames for call in calls for exchange in call.model_calls)
        for look in (trajectory.initial_frames, *(call.frames for call in calls), *asked):
            indices.update(frame.index for frame in _spread(look, frames_per_look))
    return sorted(indices)


def _spread(frames: Sequence[FrameRecord], count: int) -> list[FrameRecord]:
    if not frames:
        return []
    return [frames[position] for position in linspace_indices(0, len(frames) - 1, count)]


def _decode(path: str, indices: Sequence[int], recorded: set[VideoInfo]) -> dict[int, bytes]:
    with Video(path, _DEADLINE_SECONDS) as video:
        if any(info.num_frames != video.info.num_frames for info in recorded):
            raise VideoError(f"{path}: it has {video.info.num_frames} frames now, and had others when it was recorded")
        if not indices:
            return {}
        width, height = fit_box(video.info.width, video.info.height, SIDE_PIXELS, SIDE_PIXELS)
        frames_THWC = video.frames_at_indices(indices, height, width, _DEADLINE_SECONDS).frames_THWC
    jpegs: dict[int, bytes] = {}
    for index, pixels_HWC in zip(indices, frames_THWC, strict=True):
        file = io.BytesIO()
        Image.fromarray(pixels_HWC).save(file, "JPEG", quality=70)
        jpegs[index] = file.getvalue()
    return jpegs
