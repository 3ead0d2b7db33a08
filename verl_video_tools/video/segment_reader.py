"""Frames by index from the nearest key frame: seek, check, decode no further than the last frame asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import av
import numpy as np

from verl_video_tools.video import h264, hevc
from verl_video_tools.video.damage import SoundFrames
from verl_video_tools.video.segments import Segment, SegmentTable
from verl_video_tools.video.source import Deadline, VideoSource


class _SeekMisled(Exception):
    """After a seek there are other packets than in a pass from the start."""


class SegmentReader:
    """A `FrameReader` over a table of segments.

    Every packet is compared with the one that the table's pass over the file has seen in its place, before it is
    decoded. Where a seek gives others, this and all further packets are read from the start of the file, which needs no
    decoding before the key frame.
    """

    is_random_access = True

    def __init__(self, source: VideoSource, table: SegmentTable) -> None:
        self._source = source
        self._table = table
        self._decodable: dict[int, list[int]] = {}
        self._seeks = True
        self._can_skip = _unreferenced_frames_can_be_skipped(source)
        self.num_frames = table.num_frames
        self.pts_at = table.pts_at
        self.index_at = table.index_at
        self.last_duration = table.last_duration

    def group_of(self, index: int, deadline: Deadline) -> int:
        """Number of the segment that decoding a frame begins with."""
        return self._first_segment_for(self._table.segment_of(index), self._table.pts_at(index, deadline), deadline)

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode frames, given by ascending distinct indices; those that cannot be decoded are left out."""
        for first_segment, last_segment, wanted in self._runs(indices, deadline):
            yield from self._wanted_of_run(first_segment, last_segment, wanted, deadline)

    def _wanted_of_run(
        self, first_segment: int, last_segment: int, wanted: Mapping[int, int], deadline: Deadline
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        missing = dict(wanted)
        while True:
            try:
                for frame in self._decode_run(first_segment, last_segment, missing.keys(), deadline):
                    if frame.pts in missing:
                        yield missing.pop(frame.pts), frame
                return
            except _SeekMisled:
                if not self._seeks:  # the file is another one by now
                    return
                self._seeks = False

    def _runs(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, int, dict[int, int]]]:
        """Group frames by the stretch of segments to decode: (first segment, last segment, {pts: index})."""
        run: tuple[int, int, dict[int, int]] | None = None
        for index in indices:
            number = self._table.segment_of(index)
            pts = self._table.pts_at(index, deadline)
            first = self._first_segment_for(number, pts, deadline)
            if run is not None and first <= run[1]:
                run = (run[0], max(run[1], number), run[2])
                run[2][pts] = index
            else:
                if run is not None:
                    yield run
                run = (first, number, {pts: index})
        if run is not None:
            yield run

    def _first_segment_for(self, number: int, pts: int, deadline: Deadline) -> int:
        """Where decoding has to begin for a frame of segment `number`."""
        # Frames shown before their key frame (an open group of pictures) refer to the segment before as well.
        if number > 0 and pts < self._table.segment(number, deadline).key_pts:
            number -= 1
        while number > 0 and not self._table.segment(number, deadline).can_start:
            number -= 1
        return number

    def _decode_run(
        self, first_segment: int, last_segment: int, wanted_pts: Collection[int], deadline: Deadline
    ) -> Iterator[av.VideoFrame]:
        """Decode until the wanted frames are out, if they are sound; other sound frames come with them.

        Raises:
            _SeekMisled: the packets are not those of the table; frames that came before are right.
        """
        unsent = set(wanted_pts)
        sound = SoundFrames()
        for packet, segment, position in self._packets(first_segment, last_segment, deadline):
            pts = int(segment.packets.pts[position])
            is_unreferenced = self._can_skip and self._is_unreferenced(packet)
            begins_group = position == 0 and segment.can_start
            sound.sent(pts, begins_group, bool(segment.is_damaged[position]), is_unreferenced)
            if self._can_skip:  # only such pictures: the decoder refuses no packet while it may leave out its picture
                self._source.skip_unreferenced(is_unreferenced and pts not in wanted_pts)
            frames = self._source.decode(packet)
            if frames is None:
                sound.refused(pts)
            yield from sound.of(frames or ())
            unsent.discard(pts)
            if not unsent:
                break
        yield from sound.of(self._source.decode(None) or ())
        yield from sound.rest()

    def _is_unreferenced(self, packet: av.Packet) -> bool:
        told_by = h264.is_unreferenced if self._source.codec_name == "h264" else hevc.is_unreferenced
        return told_by(bytes(packet), self._source.stream.codec_context.extradata)

    def _packets(
        self, first_segment: int, last_segment: int, deadline: Deadline
    ) -> Iterator[tuple[av.Packet, Segment, int]]:
        """Packets of a stretch of segments in decode order, each the one that the table knows at that position."""
        entry = self._table.segment(first_segment, deadline)
        packets = self._source.packets_from(
            entry.seek_tick if self._seeks else None,
            # By time and size: a damaged key frame is no longer marked as one.
            is_entry=lambda packet: entry.packets.holds(0, packet),
            is_beyond=lambda packet: packet.dts is not None and packet.dts > entry.key_pts,
            deadline=deadline,
        )
        for number in range(first_segment, last_segment + 1):
            segment = self._table.segment(number, deadline)
            for position in range(len(segment.packets)):
                packet = next(packets, None)
                if packet is None or not segment.packets.holds(position, packet):
                    raise _SeekMisled
                yield packet, segment, position

    def decodable_near(self, index: int, within: range, deadline: Deadline) -> int | None:
        """Index, one of `within`, of the decodable frame nearest to one that is not; None if there is none."""
        first_index = self._table.first_index

        def gap(number: int) -> int:
            """Frames to the nearest one of a segment."""
            return max(0, int(first_index[number]) - index, index - int(first_index[number + 1]) + 1)

        best: int | None = None
        numbers = range(self._table.segment_of(within[0]), self._table.segment_of(within[-1]) + 1)
        for number in sorted(numbers, key=gap):
            if best is not None and abs(best - index) <= gap(number):
                break
            found = [other for other in self._decodable_with(number, deadline) if other in within]
            candidates = [*found, *([] if best is None else [best])]
            best = min(candidates, key=lambda candidate: (abs(candidate - index), candidate), default=None)
        return best

    def keyframe_indices(self, deadline: Deadline) -> list[int]:
        """Ascending indices of the frames that can be decoded without any other."""
        indices = []
        for number in range(len(self._table.first_index) - 1):
            segment = self._table.segment(number, deadline)
            rank = int(np.searchsorted(segment.frame_pts, segment.key_pts))
            is_shown = rank < len(segment.frame_pts) and segment.frame_pts[rank] == segment.key_pts
            if is_shown and segment.can_start:
                indices.append(int(self._table.first_index[number]) + rank)
        return indices

    def is_in_closed_group(self, index: int, deadline: Deadline) -> bool:
        """Whether the frame's group begins with the frame shown first, a key frame indeed."""
        segment = self._table.segment(self._table.segment_of(index), deadline)
        return segment.can_start and segment.frame_pts[0] == segment.key_pts

    def close(self) -> None:
        """Free the file and the decoder."""
        self._source.close()

    def _decodable_with(self, number: int, deadline: Deadline) -> list[int]:
        """Indices of the decodable frames that are decoded from the same key frame on as those of a segment."""
        first, end = number, number + 1
        while first > 0 and not self._table.segment(first, deadline).can_start:
            first -= 1
        while end < len(self._table.first_index) - 1 and not self._table.segment(end, deadline).can_start:
            end += 1
        if first not in self._decodable:  # damage stays, so it is looked for once
            indices = range(int(self._table.first_index[first]), int(self._table.first_index[end]))
            self._decodable[first] = [found for found, _ in self.decode(indices, deadline)]
        return self._decodable[first]


def _unreferenced_frames_can_be_skipped(source: VideoSource) -> bool:
    """Whether leaving out the pictures that FFmpeg calls non-reference cannot change any other picture.

    In H.264 such a picture (nal_ref_idc 0) is not used to predict any other. In HEVC it is not used by pictures of its
    own temporal sub-layer, so this holds if there is only one sub-layer, as the file's hvcC record says. For other
    codecs it saves nothing or loses frames (AV1).
    """
    if source.codec_name == "h264":
        return True
    hvcc = source.stream.codec_context.extradata or b""
    num_temporal_layers = (hvcc[21] >> 3) & 7 if len(hvcc) > 21 and hvcc[0] == 1 else 0
    return source.codec_name == "hevc" and num_temporal_layers == 1
