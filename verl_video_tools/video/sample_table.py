"""Segments of an MP4 file from its sample table: nothing but the asked segments is read from the file."""

from __future__ import annotations

from itertools import islice

import numpy as np
from av.index import IndexEntries

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video.mp4_tables import is_one_whole_stretch
from verl_video_tools.video.segments import (
    Between,
    PacketRow,
    PacketsUnusable,
    Segment,
    SegmentTable,
    TableContradicted,
    Ticks,
    make_segment,
    read_row,
)
from verl_video_tools.video.source import Deadline, VideoSource


class SampleTable:
    """FFmpeg's index of an MP4 file: decode time, key and hidden flag of every packet, edit list already applied.

    Raises:
        PacketsUnusable: the table is not the whole truth (fragmented, truncated or odd file).
    """

    def __init__(self, source: VideoSource) -> None:
        entries = source.stream.index_entries
        source.check_num_packets(len(entries))
        # A fragmented file has more samples than its header declares.
        if not 0 < len(entries) <= source.stream.frames:
            raise PacketsUnusable
        # Where one stretch of media ends and another begins, hidden packets have the times of shown ones. And no packet
        # comes for a sample without data, so that those after it would be counted one too high.
        if not entries[0].is_keyframe or not is_one_whole_stretch(source.path):
            raise PacketsUnusable
        starts = _key_positions(entries)
        ends = np.append(starts[1:], len(entries))
        self._source = source
        self.num_packets = ends - starts
        self.counts = self.num_packets - _num_hidden(entries, starts, ends)
        self.key_dts = np.array([entries[int(start)].timestamp for start in starts], dtype=np.int64)
        # A seek to the key frame's decode time would land one key frame earlier, since it is shown only later.
        self.seek_ticks = [entries[int(end) - 1].timestamp for end in ends]
        if np.any(np.diff(self.key_dts) <= 0):
            raise PacketsUnusable

    def read(self, number: int, deadline: Deadline, is_last: bool = False) -> Segment:
        """Read the times of one segment's packets; `is_last` asks that the file ends after it.

        Raises:
            PacketsUnusable: the packets there are not as many as the table has, or no segment.
        """
        dts, num_packets = int(self.key_dts[number]), int(self.num_packets[number])
        next_dts = int(self.key_dts[number + 1]) if number + 1 < len(self.key_dts) else None
        packets = self._source.packets_from(
            self.seek_ticks[number],
            is_entry=lambda packet: packet.dts == dts,
            is_beyond=lambda packet: packet.dts is not None and packet.dts > dts,
            deadline=deadline,
        )
        rows: list[PacketRow] = []
        for packet in islice(packets, num_packets):
            # Where FFmpeg drops a sample, as many packets reach into the next segment.
            if next_dts is not None and packet.dts is not None and packet.dts >= next_dts:
                raise PacketsUnusable
            first_key_pts = rows[0].pts if rows and number == 0 else None
            rows.append(read_row(self._source, packet, begins_segment=not rows, first_key_pts=first_key_pts))
        if len(rows) != num_packets or (is_last and next(packets, None) is not None):
            raise PacketsUnusable
        return make_segment(self._source, rows, self.seek_ticks[number], is_first=number == 0)


def _key_positions(entries: IndexEntries) -> Ticks:
    """Where key frames stand in the table; the first entry is one.

    From key frame to key frame by FFmpeg's own search: to look at every entry of an hour of video takes longer than all
    the rest of opening it. Should times that do not ascend mislead the search, a key frame is missed, and the segment
    before it is merely longer.
    """
    positions = [0]
    # Each search passes over all entries that the edit list hides, more than once.
    hides_some = entries[0].is_discard or entries[len(entries) - 1].is_discard
    while not hides_some and len(positions) <= len(entries) // 4:
        found = entries.search_timestamp(entries[positions[-1]].timestamp + 1, backward=False)
        if found <= positions[-1]:
            return np.array(positions, dtype=np.int64)
        positions.append(found)
    # Looking at every entry is faster.
    return np.flatnonzero([entry.is_keyframe for entry in entries])


def _num_hidden(entries: IndexEntries, starts: Ticks, ends: Ticks) -> Ticks:
    """Per segment, packets that the edit list hides.

    A single edit hides a stretch at either end or nothing. So where the first and the last segment are shown whole, the
    ones between are, too, and need not be looked at.
    """

    def hidden_in(start: int, end: int) -> int:
        return sum(entry.is_discard for entry in entries[int(start) : int(end)])

    if hidden_in(0, ends[0]) == hidden_in(starts[-1], ends[-1]) == 0:
        return np.zeros(len(starts), dtype=np.int64)
    return np.array([hidden_in(start, end) for start, end in zip(starts, ends, strict=True)], dtype=np.int64)


def segments_of_sample_table(source: VideoSource, deadline: Deadline) -> SegmentTable:
    """Segments of an MP4 file whose table proves right at both ends and in the middle.

    Reading another segment raises TableContradicted where the table does not prove right.

    Raises:
        PacketsUnusable: the table is not the whole truth.
    """
    table = SampleTable(source)
    last = len(table.counts) - 1
    samples = {number: table.read(number, deadline, is_last=number == last) for number in {0, last // 2, last}}
    if not all(segment.can_start for segment in samples.values()):
        raise PacketsUnusable  # marks that are wrong here are wrong elsewhere, and then segments may overlap
    table.counts[0] = len(samples[0].frame_pts)
    if any(len(segment.frame_pts) != table.counts[number] for number, segment in samples.items()):
        raise PacketsUnusable
    # Where a damaged time lies among those of another segment, frames are not in the order that indices count.
    times = np.concatenate([samples[number].frame_pts for number in sorted(samples)])
    if np.any(np.diff(times) <= 0):
        raise PacketsUnusable

    def load(number: int, between: Between, deadline: Deadline) -> Segment:
        try:
            segment = table.read(number, deadline)
        except PacketsUnusable:
            segment = None
        if segment is None or len(segment.frame_pts) != table.counts[number]:
            raise TableContradicted(
                f"{source.path}: the packets of segment {number} are not those of the file's own table"
            )
        before, after = between
        if len(pts := segment.frame_pts) and (
            (before is not None and pts[0] <= before) or (after is not None and pts[-1] >= after)
        ):
            raise UnreadableVideoError(
                f"{source.path}: frames of segment {number} have times among those of others, so the file's table of "
                "times is damaged; copy the video with `ffmpeg -fflags +genpts -i OLD -c copy NEW.mkv`"
            )
        return segment

    # No packet is shown before it is decoded, so decode times bound presentation times from below.
    return SegmentTable(table.key_dts, table.counts, samples, load)
