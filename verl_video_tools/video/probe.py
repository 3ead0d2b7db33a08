"""All that can be told of a video file, for reports on data sets."""

from __future__ import annotations

import enum
import math
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from av.video.stream import VideoStream

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.core.sample import read_clip
from verl_video_tools.core.types import VideoInfo
from verl_video_tools.video.containers import open_container
from verl_video_tools.video.mp4_tables import has_edit_list
from verl_video_tools.video.source import Deadline
from verl_video_tools.video.video import Video

FRAMES_PER_CHECK = 1000
CHECK_SIDE_PIXELS = 8
"""Frames are checked by decoding them; so small they cost neither time nor memory beyond that."""


@dataclass(frozen=True, slots=True)
class VideoProbe:
    """Facts about one file. What the file does not say is None.

    Attributes:
        info: duration, frames, rate and displayed size, as a rollout sees them.
        container: FFmpeg's names of the container, separated by commas.
        codec, profile, pixel_format: FFmpeg's names.
        color_space, color_range, color_transfer, color_primaries: of the encoder's mark in the stream.
        rotation_degrees: counter-clockwise turn that a player makes, 0, 90, 180 or 270.
        start_seconds: time of the first frame shown on the file's own clock; ours begins there with 0.
        time_base: seconds per tick of that clock, as a fraction.
        is_variable_frame_rate: frames are not evenly spaced (by more than one tick).
        is_random_access: any frame is reached from a key frame near it; else all before it must be decoded.
        num_keyframes: frames where decoding can begin.
        mean_gop_seconds, longest_gop_seconds: from one key frame to the next or to the end.
        audio_codecs: of each audio stream.
        bit_rate: bits per second of the whole file.
        has_edit_list: in MP4, the video track has one; decoders that ignore it show frames that are hidden.
        num_damaged_frames: frames that cannot be decoded; None if that was not checked.
    """

    info: VideoInfo
    container: str
    codec: str
    profile: str | None
    pixel_format: str | None
    color_space: str | None
    color_range: str | None
    color_transfer: str | None
    color_primaries: str | None
    rotation_degrees: int
    start_seconds: float
    time_base: str
    is_variable_frame_rate: bool
    is_random_access: bool
    num_keyframes: int
    mean_gop_seconds: float
    longest_gop_seconds: float
    audio_codecs: tuple[str, ...]
    bit_rate: int
    has_edit_list: bool
    num_damaged_frames: int | None


def probe(
    path: str | os.PathLike[str], deadline_seconds: float | None = None, check_decoding: bool = False
) -> VideoProbe:
    """Probe a file with PyAV.

    Args:
        path: a local file, or a part of one (`core.sample`); of this are length, frames and key frames then.
        deadline_seconds: time that it may take.
        check_decoding: decode every frame, and count those that are damaged.

    Raises:
        VideoError: the file cannot be read as a video, or not in time; see `Video`.
    """
    path = Path(path)
    clip = read_clip(path)
    file, is_clip = Path(clip.file), clip.seconds is not None
    deadline = Deadline(deadline_seconds, f"{path}: probe")
    with Video(path, deadline_seconds, backend="pyav") as video:
        timestamps_seconds = video.timestamps_seconds(deadline)
        info = video.info  # only now: should the file's table be wrong, this has been found out
        keyframe_indices = video.keyframe_indices(deadline)
        is_random_access = video.is_random_access
        first_tick_seconds = video.start_seconds
        num_damaged_frames = _count_damaged(video, deadline) if check_decoding else None
    gops_seconds = np.diff([*timestamps_seconds[keyframe_indices], info.duration_seconds])
    steps_seconds = np.diff(timestamps_seconds)
    try:
        with open_container(file) as container:
            stream = container.streams.best("video")
            assert isinstance(stream, VideoStream) and stream.time_base is not None
            codec = stream.codec_context
            rotation_degrees = round(next(container.decode(stream)).rotation / 90) % 4 * 90
            return VideoProbe(
                info=info,
                container=container.format.name,
                codec=codec.codec.canonical_name,
                profile=codec.profile,
                pixel_format=codec.pix_fmt,
                color_space=_name(Colorspace, codec.colorspace),
                color_range=_name(ColorRange, codec.color_range),
                color_transfer=_name(ColorTrc, codec.color_trc),
                color_primaries=_name(ColorPrimaries, codec.color_primaries),
                rotation_degrees=rotation_degrees,
                start_seconds=first_tick_seconds,
                time_base=str(Fraction(stream.time_base)),
                is_variable_frame_rate=len(steps_seconds) > 1
                and bool(np.ptp(steps_seconds) > 1.5 * float(stream.time_base)),
                is_random_access=is_random_access,
                num_keyframes=len(keyframe_indices),
                mean_gop_seconds=float(np.mean(gops_seconds)),
                longest_gop_seconds=float(np.max(gops_seconds)),
                audio_codecs=tuple(audio.codec_context.name for audio in container.streams.audio),
                bit_rate=round(file.stat().st_size * 8 / (_seconds(container) if is_clip else info.duration_seconds)),
                has_edit_list="mov" in container.format.name.split(",") and has_edit_list(file),
                num_damaged_frames=num_damaged_frames,
            )
    except (av.FFmpegError, OSError) as error:
        raise UnreadableVideoError(f"{path}: cannot be read any more: {error}") from error


def _seconds(container: InputContainer) -> float:
    """Length by the file's own account, which is infinite where it gives none."""
    return float(container.duration / av.time_base) if container.duration else math.inf


def _count_damaged(video: Video, deadline: Deadline) -> int:
    num_damaged = 0
    for start in range(0, video.info.num_frames, FRAMES_PER_CHECK):
        indices = range(start, min(start + FRAMES_PER_CHECK, video.info.num_frames))
        sides = {"height": CHECK_SIDE_PIXELS, "width": CHECK_SIDE_PIXELS}
        num_damaged += int(
            video.frames_at_indices(indices, **sides, deadline_seconds=deadline.left_seconds()).corrupt.sum()
        )
    return num_damaged


def _name(names: type[enum.IntEnum], value: int) -> str | None:
    """FFmpeg's name of a code, in lower case; None where the stream does not say."""
    try:
        name = names(value).name.lower()
    except ValueError:
        return None
    return None if name == "unspecified" else name
