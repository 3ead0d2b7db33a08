"""Where every frame of a file is: its packets cut into segments that begin at a key frame.

A segment is a run of packets in decode order such that every frame of an earlier segment is shown before every frame
of a later one. Then a frame's index in presentation order is the number of frames in earlier segments plus its rank
among the times of its own, and both are exact without decoding anything.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import av
import numpy as np
import numpy.typing as npt

from verl_video_tools.video.h264 import has_inter_slices
from verl_video_tools.video.hevc import is_skipped_leading
from verl_video_tools.video.source import Deadline, VideoSource

Ticks = npt.NDArray[np.int64]

Between = tuple[int | None, int | None]
"""A time before and a time after, both exclusive, in ticks; None for no bound."""


class PacketsUnusable(Exception):
    """Packets do not tell the frames: a time is missing or doubled, or no key frame is marked."""


class TableContradicted(Exception):
    """Packets read from a file are not those of its own table, which opening it had found right where it looked."""


@dataclass(frozen=True)
class PacketMarks:
    """What a stretch of packets is known again by: presentation times in ticks, and sizes in bytes.

    A seek may not give the packets that a pass from the start gives: in MPEG program streams several frames share the
    time stamp of one PES packet, and FFmpeg guesses other times for them after a seek than it does from the start.
    """

    pts: Ticks
    num_bytes: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.pts)

    def holds(self, position: int, packet: av.Packet) -> bool:
        """Whether a packet read again is the one at this position."""
        return bool(packet.pts == self.pts[position] and packet.size == self.num_bytes[position])


@dataclass(frozen=True)
class Segment:
    """Packets from one key frame up to the next segment.

    Attributes:
        seek_tick: aim of a seek that should land on the key frame.
        key_pts: presentation time of the key frame, in ticks.
        packets: those of the segment in decode order, hidden frames included, as one pass over the file gives them.
        frame_pts: times of the frames that are shown, ascending.
        last_duration: duration of the frame shown last, 0 if unknown.
        can_start: the key frame can be decoded without anything before it, as its mark promises.
        is_damaged: for each packet, whether the demuxer misses bytes of it or of the packet before.
    """

    seek_tick: int
    key_pts: int
    packets: PacketMarks
    frame_pts: Ticks
    last_duration: int
    can_start: bool
    is_damaged: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PacketRow:
    """What is kept of a packet.

    Attributes:
        is_dropped: no decoder shows it, since the file begins after what it refers to.
        is_corrupt: the demuxer misses bytes of it, or of the next packet: where it cuts packets from a stream, as in
            MPEG-TS, it has begun to read the next one by the time it hands one out.
    """

    pts: int | None
    is_keyframe: bool
    is_false_key: bool
    is_hidden: bool
    is_dropped: bool
    duration: int
    num_bytes: int
    is_corrupt: bool


def read_row(
    source: VideoSource, packet: av.Packet, begins_segment: bool, first_key_pts: int | None = None
) -> PacketRow:
    """What is kept of a packet.

    Args:
        first_key_pts: for a packet of the file's first segment, the time of its key frame.
    """
    is_false_key = (
        begins_segment
        and source.codec_name == "h264"
        and has_inter_slices(bytes(packet), source.stream.codec_context.extradata)
    )
    is_leading = first_key_pts is not None and packet.pts is not None and packet.pts < first_key_pts
    is_dropped = is_leading and _drops_leading(source, packet)
    return PacketRow(
        pts=packet.pts,
        is_keyframe=packet.is_keyframe,
        is_false_key=is_false_key,
        is_hidden=packet.is_discard,
        is_dropped=is_dropped,
        duration=packet.duration or 0,
        num_bytes=packet.size,
        is_corrupt=packet.is_corrupt,
    )


def _drops_leading(source: VideoSource, packet: av.Packet) -> bool:
    """Whether the decoder drops a frame that is shown before the file's first key frame, though sent after it."""
    if source.codec_name == "hevc":
        return is_skipped_leading(bytes(packet), source.stream.codec_context.extradata)
    return source.codec_name == "h264"


def make_segment(
    source: VideoSource, rows: Sequence[PacketRow], seek_tick: int, is_first: bool, follows_corrupt: bool = False
) -> Segment:
    """A segment of packets in decode order; the first packet is its key frame.

    Args:
        follows_corrupt: the packet before the segment `is_corrupt`.

    Raises:
        PacketsUnusable: a packet has no time, two have the same, or nothing that the file's first frames need is there.
    """
    times = [row.pts for row in rows]
    if not rows or None in times or len(set(times)) != len(times) or (is_first and rows[0].is_false_key):
        raise PacketsUnusable
    assert times[0] is not None
    shown = sorted(
        (row.pts, row.duration) for row in rows if row.pts is not None and not (row.is_hidden or row.is_dropped)
    )
    is_corrupt = [follows_corrupt, *(row.is_corrupt for row in rows)]
    return Segment(
        seek_tick=seek_tick,
        key_pts=times[0],
        packets=PacketMarks(np.array(times, dtype=np.int64), np.array([row.num_bytes for row in rows], dtype=np.int32)),
        frame_pts=np.array([pts for pts, _ in shown], dtype=np.int64),
        last_duration=shown[-1][1] if shown else 0,
        can_start=not rows[0].is_false_key,
        is_damaged=np.array([before or corrupt for before, corrupt in pairwise(is_corrupt)], dtype=np.bool_),
    )


class SegmentTable:
    """All segments of a file, each read when it is first asked for.

    Args:
        lower_pts: per segment, a time that neither its frames nor those of later segments come before, in ticks.
        counts: per segment, the number of frames shown.
        loaded: segments read already, by number.
        load: reads one of the others, given its number and the times that its frames must lie between.
    """

    def __init__(
        self,
        lower_pts: Ticks,
        counts: Ticks,
        loaded: Mapping[int, Segment],
        load: Callable[[int, Between, Deadline], Segment] | None = None,
    ) -> None:
        self._lower_pts = lower_pts
        self._load = load
        self._loaded = dict(loaded)
        self._numbers = sorted(self._loaded)
        self.first_index: Ticks = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        self.num_frames = int(self.first_index[-1])

    def segment(self, number: int, deadline: Deadline) -> Segment:
        if number not in self._loaded and self._load is not None:
            self._loaded[number] = self._load(number, self._between_neighbours(number), deadline)
            insort(self._numbers, number)
        return self._loaded[number]

    def _between_neighbours(self, number: int) -> Between:
        """Times that the nearest segments read so far leave for one that was not read."""
        place = bisect(self._numbers, number)
        before = (self._loaded[other].frame_pts for other in reversed(self._numbers[:place]))
        after = (self._loaded[other].frame_pts for other in self._numbers[place:])
        return (
            next((int(pts[-1]) for pts in before if len(pts)), None),
            next((int(pts[0]) for pts in after if len(pts)), None),
        )

    def segment_of(self, index: int) -> int:
        """Number of the segment that holds a frame, 0 <= index < num_frames."""
        return int(np.searchsorted(self.first_index, index, side="right")) - 1

    def pts_at(self, index: int, deadline: Deadline) -> int:
        number = self.segment_of(index)
        return int(self.segment(number, deadline).frame_pts[index - self.first_index[number]])

    def index_at(self, pts: int, deadline: Deadline) -> int:
        """Index of the last frame whose time is not after `pts`; the first frame for an earlier time."""
        number = int(np.searchsorted(self._lower_pts, pts, side="right")) - 1
        while number >= 0:
            frame_pts = self.segment(number, deadline).frame_pts
            if len(frame_pts) and frame_pts[0] <= pts:
                return int(self.first_index[number] + np.searchsorted(frame_pts, pts, side="right")) - 1
            number -= 1
        return 0

    def last_duration(self, deadline: Deadline) -> int:
        """Duration of the last frame in ticks, 0 if the file does not say."""
        return self.segment(self.segment_of(self.num_frames - 1), deadline).last_duration
