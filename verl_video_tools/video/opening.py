"""Opening a file: which frame is where, how long all of them last, and what decodes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.core.sample import read_clip
from verl_video_tools.core.types import VideoInfo
from verl_video_tools.video.backends import BackendName, FrameDecoder, open_backend
from verl_video_tools.video.clipped_reader import ClippedDecoder, clipped
from verl_video_tools.video.frame_converter import display_size
from verl_video_tools.video.readers import FrameReader, open_reader
from verl_video_tools.video.source import MAX_DURATION_SECONDS, Deadline, VideoSource
from verl_video_tools.video.stand_ins import frames_or_stand_ins

EVEN_TOLERANCE_SECONDS = 0.002
"""Frames at a constant rate may be this far from even: containers round times, often to a millisecond."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file, or a part of one, whose frames can be asked for. `first_pts` is the first frame's time, in ticks."""

    source: VideoSource
    reader: FrameReader
    decoder: FrameDecoder
    first_pts: int
    info: VideoInfo


def open_file(path: Path, backend: BackendName, deadline: Deadline, trusts_table: bool) -> OpenedFile:
    """Open a file, or the part of it that the path names (`core.sample`).

    Args:
        trusts_table: see `open_reader`.

    Raises:
        VideoError: see `Video`.
        TableContradicted: the file's sample table is wrong.
    """
    file, clip_seconds = read_clip(path)
    source = VideoSource(Path(file))
    decoder: FrameDecoder | None = None
    try:
        whole = open_reader(source, deadline, trusts_table)
        if whole.num_frames == 0:
            raise UnreadableVideoError(f"{path}: the video stream shows no frame")
        clip = None if clip_seconds is None else clipped(whole, path, clip_seconds, source.time_base, deadline)
        reader: FrameReader = clip or whole
        first_pts = reader.pts_at(0, deadline)
        last_pts, end_pts = _last_and_end_pts(reader, source, deadline)
        last_seconds, duration_seconds = (
            seconds_between(first_pts, pts, source.time_base) for pts in (last_pts, end_pts)
        )
        if duration_seconds > MAX_DURATION_SECONDS:
            raise UnreadableVideoError(
                f"{path}: lasts {duration_seconds:.0f} s, longer than the {MAX_DURATION_SECONDS:.0f} s that "
                "are read; cut it into shorter videos"
            )
        # Only now: other decoders than ours have no limits.
        decoder = open_backend(backend, source, whole, deadline)
        if clip is not None:
            decoder = ClippedDecoder(decoder, clip.first)
        _, _, frame = next(frames_or_stand_ins(path, decoder, reader, [0], deadline))
        info = _info(source, reader.num_frames, last_seconds, duration_seconds, display_size(frame))
        return OpenedFile(source, reader, decoder, first_pts, info)
    except BaseException:
        if decoder is not None:
            decoder.close()
        source.close()
        raise


def seconds_between(first_pts: int, pts: int, time_base: Fraction) -> float:
    """An exact quotient, correctly rounded."""
    return (pts - first_pts) * time_base.numerator / time_base.denominator


def _last_and_end_pts(reader: FrameReader, source: VideoSource, deadline: Deadline) -> tuple[int, int]:
    """When the last frame begins and ends, in ticks."""
    num_frames = reader.num_frames
    last_pts = reader.pts_at(num_frames - 1, deadline)
    duration = reader.last_duration(deadline)
    if duration <= 0 and num_frames > 1:  # the file does not say: as long as the frame before
        duration = last_pts - reader.pts_at(num_frames - 2, deadline)
    elif duration <= 0:
        duration = round(1 / ((source.stream.average_rate or Fraction(1)) * source.time_base))
    return last_pts, last_pts + max(1, duration)


def _info(
    source: VideoSource, num_frames: int, last_seconds: float, duration_seconds: float, size: tuple[int, int]
) -> VideoInfo:
    average_rate = source.stream.average_rate
    # The nominal rate is exact where coarse ticks make the measured one 29.9998; but it may be plain wrong.
    average_fps = num_frames / duration_seconds
    if average_rate is not None and abs(average_rate * duration_seconds - num_frames) <= 0.1:
        average_fps = float(average_rate)
    width, height = size
    info = VideoInfo(
        duration_seconds=duration_seconds,
        num_frames=num_frames,
        average_fps=average_fps,
        width=width,
        height=height,
    )
    is_even = abs(last_seconds - info.last_seconds) <= EVEN_TOLERANCE_SECONDS
    return info if is_even else replace(info, uneven_last_seconds=last_seconds)
