"""What a frame reader is, and which one is right for a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import av

from verl_video_tools.video.packet_scan import segments_of_packets
from verl_video_tools.video.sample_table import segments_of_sample_table
from verl_video_tools.video.segment_reader import SegmentReader
from verl_video_tools.video.segments import PacketsUnusable
from verl_video_tools.video.sequential_reader import SequentialReader
from verl_video_tools.video.source import Deadline, VideoSource

TIMED_CONTAINERS = frozenset({"mov", "matroska", "mpegts", "flv", "mpeg"})
"""Containers that store presentation times; for AVI, raw streams and others FFmpeg has to guess them."""

ONE_FRAME_PER_PACKET = frozenset({"h264", "hevc", "vp9", "av1", "mpeg4", "mpeg1video", "mpeg2video", "mjpeg", "prores"})
"""Codecs whose packets show one frame each. VP8, for one, has packets of hidden frames that carry a time as well."""


class FrameReader(Protocol):
    """Frames of one file by index in presentation order; times in ticks of the stream's time base."""

    num_frames: int
    is_random_access: bool
    """Whether a frame is reached from a key frame near it, and not only by decoding all that comes before."""

    def pts_at(self, index: int, deadline: Deadline) -> int: ...

    def index_at(self, pts: int, deadline: Deadline) -> int:
        """Index of the last frame whose time is not after `pts`; the first frame for an earlier time."""
        ...

    def last_duration(self, deadline: Deadline) -> int:
        """Duration of the last frame in ticks, 0 if the file does not say."""
        ...

    def group_of(self, index: int, deadline: Deadline) -> int:
        """Number of the group of pictures that decoding a frame begins with."""
        ...

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode frames, given by ascending distinct indices; those that cannot be decoded are left out."""
        ...

    def decodable_near(self, index: int, within: range, deadline: Deadline) -> int | None:
        """Index, one of `within`, of the decodable frame nearest to one that is not; None if there is none."""
        ...

    def keyframe_indices(self, deadline: Deadline) -> list[int]:
        """Ascending indices of the frames that can be decoded without any other, as far as known."""
        ...

    def is_in_closed_group(self, index: int, deadline: Deadline) -> bool:
        """Whether the frame's group of pictures is known to begin with the frame shown first, a key frame indeed.

        Then counting the frames that a decoder hands out from the key frame on gives their indices.
        """
        ...

    def close(self) -> None:
        """Free the file and the decoder; what is asked after that opens the file again."""
        ...


def open_reader(source: VideoSource, deadline: Deadline, trusts_table: bool = True) -> FrameReader:
    """The cheapest reader that is exact for a file just opened.

    Args:
        trusts_table: believe the sample table of an MP4 file where it looks right. The reader raises
            `TableContradicted` should it turn out wrong elsewhere.

    Raises:
        UnreadableVideoError: the stream holds no frames.
        DeadlineError: finding out took too long.
    """
    if not _packets_tell_frames(source):
        return SequentialReader(source, deadline)
    if trusts_table and "mov" in source.container_names:
        try:
            return SegmentReader(source, segments_of_sample_table(source, deadline))
        except PacketsUnusable:
            source.rewind()
    try:
        return SegmentReader(source, segments_of_packets(source, deadline))
    except PacketsUnusable:
        source.rewind()
        return SequentialReader(source, deadline)


def _packets_tell_frames(source: VideoSource) -> bool:
    if source.codec_name not in ONE_FRAME_PER_PACKET or not source.container_names & TIMED_CONTAINERS:
        return False
    # In broadcast streams each field of an interlaced H.264 picture may travel in a packet of its own.
    is_interlaced = source.stream.codec_context.field_order > PROGRESSIVE_FIELD_ORDER
    return not (source.codec_name == "h264" and is_interlaced and source.container_names & {"mpegts", "mpeg"})


PROGRESSIVE_FIELD_ORDER = 1
"""FFmpeg's AV_FIELD_PROGRESSIVE; 0 is unknown, what is above is interlaced."""
