"""Where the frames of a file are, and their decoding: from a key frame up to the last frame that is requested.

All files have one kind of index, made when they are opened: of MP4 from the tables of the file, of Matroska, MPEG-TS
and FLV from one pass over the packets, of all others from one pass of decoding.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import av
import numpy as np
import numpy.typing as npt
from av.video.frame import PictureType

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video.frame_converter import display_size, is_mirrored
from verl_video_tools.video.source import MAX_PACKETS, Deadline, VideoSource

Integers = npt.NDArray[np.int64]

Decode = Callable[[Sequence[int], Deadline], Iterator[tuple[int, av.VideoFrame]]]
"""Decodes frames, given by ascending distinct indices; those that cannot be decoded are left out."""

TIMED_CONTAINERS = frozenset({"mov", "matroska", "mpegts", "flv"})
"""Containers that store the time of each frame and can be sought in; other files are decoded from their start."""

ONE_FRAME_PER_PACKET = frozenset({"h264", "hevc", "vp9", "av1", "mpeg4", "mpeg1video", "mpeg2video", "mjpeg", "prores"})
"""Codecs whose packets show one frame each. VP8, for one, has packets of hidden frames that carry a time as well."""

PROGRESSIVE_FIELD_ORDER = 1
"""FFmpeg's AV_FIELD_PROGRESSIVE; 0 is unknown, what is above is interlaced."""


class IndexMismatch(Exception):
    """Packets do not tell the frames, or are not those of the index."""


@dataclass(frozen=True)
class FrameIndex:
    """Packets in decode order, and the frames that they show in presentation order; times in ticks of the stream.

    Attributes:
        pts: presentation time of each packet, shape (num_packets,).
        keys: ascending positions of the packets from which decoding can start.
        seek_ticks: for each key, where a seek lands on it.
        frame_pts: time of each frame, ascending, shape (num_frames,).
        positions: position of each frame's packet.
        last_duration: of the last frame; 0 if the file does not say.
        damaged: positions of packets of which the demuxer misses bytes.
        is_random_access: a frame is reached from a key frame near it, and not only by decoding all that comes before.
        groups: for each frame, the number of the key from which it is decoded.
    """

    pts: Integers
    keys: Integers
    seek_ticks: Integers
    frame_pts: Integers
    positions: Integers
    last_duration: int
    damaged: frozenset[int] = frozenset()
    is_random_access: bool = True
    groups: Integers = field(init=False)

    def __post_init__(self) -> None:
        groups = np.searchsorted(self.keys, self.positions, side="right") - 1
        # Frames that follow a key frame in the file and are shown before it refer to the group before as well.
        groups -= (self.frame_pts < self.pts[self.keys[groups]]) & (groups > 0)
        object.__setattr__(self, "groups", groups)

    def __len__(self) -> int:
        return len(self.frame_pts)

    def index_at(self, pts: int) -> int:
        """Index of the last frame whose time is not after `pts`; the first frame for an earlier time."""
        return max(0, int(np.searchsorted(self.frame_pts, pts, side="right")) - 1)

    def is_closed(self, group: int) -> bool:
        """Whether a group of pictures begins with its key frame in presentation order, too."""
        start, end = int(self.keys[group]), int(np.append(self.keys, len(self.pts))[group + 1])
        return self.is_random_access and bool(self.pts[start:end].min() == self.pts[start])

    def without_key(self, position: int) -> FrameIndex:
        """The index with one key less, whose packet turned out not to start decoding."""
        kept = self.keys != position
        return replace(self, keys=self.keys[kept], seek_ticks=self.seek_ticks[kept])


def open_reader(source: VideoSource, deadline: Deadline) -> FrameReader:
    """The cheapest reader that is exact for a file just opened.

    Raises:
        UnreadableVideoError: the stream holds no frames.
        DeadlineError: finding out took too long.
    """
    if _packets_tell_frames(source):
        is_mp4 = "mov" in source.container_names
        for make_index in (_index_of_tables, _index_of_packets) if is_mp4 else (_index_of_packets,):
            try:
                return FrameReader(source, make_index(source, deadline), deadline)
            except IndexMismatch:
                source.rewind()
    return FrameReader(source, _index_of_frames(source, deadline), deadline)


def _packets_tell_frames(source: VideoSource) -> bool:
    if source.codec_name not in ONE_FRAME_PER_PACKET or not source.container_names & TIMED_CONTAINERS:
        return False
    # In broadcast streams each field of an interlaced H.264 picture may travel in a packet of its own.
    is_interlaced = source.stream.codec_context.field_order > PROGRESSIVE_FIELD_ORDER
    return not (source.codec_name == "h264" and is_interlaced and "mpegts" in source.container_names)


def _index(
    pts: Integers,
    keys: Integers,
    seek_ticks: Integers,
    is_hidden: npt.NDArray[np.bool_],
    last_duration: int = 0,
    damaged: frozenset[int] = frozenset(),
) -> FrameIndex:
    """The index of packets that show one frame each.

    Raises:
        IndexMismatch: no packet is a key, two have one time, or time runs backwards from one group to the next.
    """
    if len(keys) == 0:
        raise IndexMismatch
    latest_until = np.maximum.accumulate(pts)
    earliest_from = np.minimum.accumulate(pts[::-1])[::-1]
    if np.any(latest_until[keys[1:] - 1] >= earliest_from[keys[1:]]):
        raise IndexMismatch
    order = np.argsort(pts, kind="stable")
    if np.any(np.diff(pts[order]) == 0):
        raise IndexMismatch
    # What precedes the first key frame (a recording joined midway) cannot be decoded.
    order = order[~is_hidden[order] & (order >= keys[0])]
    if len(order) == 0:
        raise IndexMismatch
    return FrameIndex(pts, keys, seek_ticks, pts[order], order, last_duration, damaged)


def _index_of_packets(source: VideoSource, deadline: Deadline) -> FrameIndex:
    """From one pass over the packets; nothing is decoded.

    Raises:
        IndexMismatch: the packets do not tell the frames.
        UnreadableVideoError: there are none.
    """
    pts, durations = array("q"), array("q")
    keys, hidden = array("q"), array("q")
    damaged: set[int] = set()
    for position, packet in enumerate(source.packets(deadline)):
        if packet.pts is None:
            raise IndexMismatch
        pts.append(packet.pts)
        durations.append(packet.duration or 0)
        if packet.is_keyframe:
            keys.append(position)
        if packet.is_discard:
            hidden.append(position)
        if packet.is_corrupt:
            # Where a demuxer cuts packets from a stream, it has begun to read the next one when it hands one out.
            damaged.update((position, position + 1))
    if not pts:
        raise UnreadableVideoError(f"{source.path}: the video stream holds no frames")
    times, starts = np.array(pts, dtype=np.int64), np.array(keys, dtype=np.int64)
    is_hidden = np.zeros(len(times), dtype=np.bool_)
    is_hidden[hidden] = True
    index = _index(times, starts, times[starts], is_hidden, damaged=frozenset(damaged))
    return replace(index, last_duration=durations[int(index.positions[-1])])


def _index_of_frames(source: VideoSource, deadline: Deadline) -> FrameIndex:
    """From decoding the file once. Times are the decoder's; a frame at the time of the one before, as clocks of
    milliseconds write them, is a tick later. Where times are missing, go back or mostly stand still, frames are spaced
    evenly at the stream's rate.

    Raises:
        UnreadableVideoError: no frame can be decoded.
    """
    pts: list[int | None] = []
    duration = 0
    for frame in _decoded(source, deadline):
        pts.append(frame.pts)
        duration = frame.duration or 0
    if not pts:
        raise UnreadableVideoError(f"{source.path}: no frame of the video stream can be decoded")
    times = [time for time in pts if time is not None]
    steps = [later - earlier for earlier, later in pairwise(times)]
    if len(times) < len(pts) or min(steps, default=1) < 0 or 2 * steps.count(0) > len(steps):
        step = 1 / (source.nominal_rate * source.time_base)
        times = [round(number * step) for number in range(len(pts))]
        duration = round(step)
    numbers = np.arange(len(times))
    frame_pts = np.maximum.accumulate(np.array(times, dtype=np.int64) - numbers) + numbers
    start = np.zeros(1, dtype=np.int64)
    return FrameIndex(frame_pts, start, frame_pts[:1], frame_pts, numbers, duration, is_random_access=False)


def _decoded(source: VideoSource, deadline: Deadline) -> Iterator[av.VideoFrame]:
    """All frames from the present position on."""
    for packet in source.packets(deadline):
        yield from source.decode(packet) or ()
    yield from source.decode(None) or ()


def _index_of_tables(source: VideoSource, deadline: Deadline) -> FrameIndex:
    """From the tables of an MP4 file, without reading the file; checked against its first and last frames.

    Raises:
        IndexMismatch: the tables are not the whole truth (a fragmented, truncated or odd file).
    """
    entries = source.stream.index_entries  # FFmpeg's own index: without times of presentation, but with all edits made
    source.check_num_packets(len(entries))
    table = _sample_table(source.path, source.stream.id)
    first_packet = next(source.packets(deadline), None)
    if table is None or not len(entries) or first_packet is None or first_packet.pts is None:
        raise IndexMismatch
    num_packets, num_samples, last = len(entries), len(table.sizes), entries[len(entries) - 1]
    if num_packets > num_samples or last.pos + last.size > source.size_bytes:
        raise IndexMismatch  # truncated, for one
    # An edit list may leave out samples at both ends: those that FFmpeg reads are found by their sizes.
    starts = table.keys[table.keys + num_packets <= num_samples] if num_packets < num_samples else np.array([0])
    ends = starts + num_packets - 1
    is_start = (table.sizes[starts] == entries[0].size) & (table.sizes[ends] == last.size)
    is_start &= table.dts[ends] - table.dts[starts] == last.timestamp - entries[0].timestamp
    if np.count_nonzero(is_start) != 1:
        raise IndexMismatch
    first = int(starts[is_start][0])
    dts, offsets = (column[first : first + num_packets] for column in (table.dts, table.offsets))
    dts = dts + entries[0].timestamp - dts[0]
    pts = dts + offsets + first_packet.pts - dts[0] - offsets[0]
    keys = table.keys[(table.keys >= first) & (table.keys < first + num_packets)] - first
    ends = np.append(keys[1:], num_packets)
    # A single edit hides packets at either end or none: where both ends are shown, all between are, too.
    is_hidden = np.zeros(num_packets, dtype=np.bool_)
    both_ends = [*range(int(ends[0])), *range(int(keys[-1]), num_packets)]
    if any(entries[position].is_discard for position in both_ends):
        is_hidden = np.fromiter((entry.is_discard for entry in entries), np.bool_, num_packets)
    # Not to the time of decoding of the key frame, which is shown only later: that would land one key frame earlier.
    index = _index(pts, keys, dts[ends - 1], is_hidden)
    last_packet = source.packet_at(int(dts[index.positions[-1]]), deadline)
    if last_packet is None or last_packet.pts != index.frame_pts[-1]:
        raise IndexMismatch
    return replace(index, last_duration=last_packet.duration or 0)


class _Restart(Exception):
    """Decoding begins again, with what has been learnt about the file."""


class FrameReader:
    """Decodes the frames of an index. Not thread-safe.

    Every packet is compared with the index before it is decoded: after a seek that gave other packets, the file is read
    from its start from then on.

    Attributes:
        first_frame_size: width and height as shown.
        is_mirrored: the file asks to show frames in mirror writing.

    Raises:
        IndexMismatch: the packets are not those of the index, or its first key frame is none.
        UnreadableVideoError: no frame can be decoded.
    """

    def __init__(self, source: VideoSource, index: FrameIndex, deadline: Deadline) -> None:
        self._source = source
        self.index = index
        self._seeks = True
        self._sound_of_group: dict[int, list[int]] = {}
        self._extradata = source.stream.codec_context.extradata or b""
        self._can_skip = _can_skip_unreferenced(source.codec_name, self._extradata)
        if index.is_random_access:
            self._leave_out_undecodable_start(deadline)
        _, _, frame = next(self.frames([0], range(len(index)), deadline))
        self.first_frame_size = display_size(frame)
        self.is_mirrored = is_mirrored(frame)

    def frames(
        self, indices: Sequence[int], within: range, deadline: Deadline, decode: Decode | None = None
    ) -> Iterator[tuple[int, int, av.VideoFrame]]:
        """(requested index, shown index, frame) for ascending distinct indices: the nearest sound frame for a bad one.

        Args:
            within: indices of frames that may replace a damaged one.
            decode: another decoder than this one.

        Raises:
            UnreadableVideoError: no frame near a damaged one can be decoded.
        """
        missing = dict.fromkeys(indices)
        for index, frame in (decode or self.decode)(indices, deadline):
            del missing[index]
            yield index, index, frame
        replaced: dict[int, list[int]] = {}
        for index in missing:
            nearest = self._nearest_sound(index, within, deadline)
            if nearest is None:
                raise UnreadableVideoError(f"{self._source.path}: neither frame {index} nor any near it can be decoded")
            replaced.setdefault(nearest, []).append(index)
        for shown, frame in self.decode(sorted(replaced), deadline):
            for index in replaced[shown]:
                yield index, shown, frame

    def decode(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode frames, given by ascending distinct indices; damaged ones are left out."""
        if not self.index.is_random_access:
            yield from self._decode_in_order(indices, deadline)
            return
        waiting = list(indices)
        while waiting:
            start, end, requested = self._first_run(waiting)
            done = set()
            try:
                for frame in self._decode_run(start, end, requested.keys(), deadline):
                    if frame.pts in requested:
                        done.add(requested[frame.pts])
                        yield requested[frame.pts], frame
            except _Restart:
                waiting = [index for index in waiting if index not in done]
            else:
                del waiting[: len(requested)]

    def _decode_in_order(self, indices: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, av.VideoFrame]]:
        requested = set(indices)
        if not requested:
            return
        self._source.rewind()
        for index, frame in enumerate(_decoded(self._source, deadline)):
            if index in requested:
                yield index, frame
            if index == indices[-1]:
                return

    def _first_run(self, indices: Sequence[int]) -> tuple[int, int, dict[int, int]]:
        """Positions of the first and the last packet to decode for the first indices, and {time: index} of these."""
        index = self.index
        start, end = int(index.keys[index.groups[indices[0]]]), -1
        requested: dict[int, int] = {}
        for number in indices:
            if requested and index.keys[index.groups[number]] > end:
                break
            end = max(end, int(index.positions[number]))
            requested[int(index.frame_pts[number])] = number
        return start, end, requested

    def _decode_run(
        self, start: int, end: int, requested_pts: Collection[int], deadline: Deadline
    ) -> Iterator[av.VideoFrame]:
        """Sound frames of the packets from a key frame to an end; of those that are not requested some may be left out.

        Raises:
            _Restart: decoding cannot start where it did, or the seek went astray.
        """
        source, run = self._source, _Run(self, start, checks_keys=self._source.codec_name == "h264")
        for position, packet in self._packets(start, end, deadline):
            is_unreferenced = self._can_skip and _is_unreferenced(packet, source.codec_name, self._extradata)
            if self._can_skip:  # only such pictures: while it may leave out a picture, the decoder reports no damage
                source.skip_unreferenced(is_unreferenced and packet.pts not in requested_pts)
            run.sent(position, packet, is_unreferenced)
            frames = source.decode(packet)
            if frames is None and not is_unreferenced:
                run.mark_damaged(packet.pts)
            yield from run.sound_among(frames or ())
        yield from run.sound_among(source.decode(None) or ())
        yield from run.rest()

    def _packets(self, start: int, end: int, deadline: Deadline) -> Iterator[tuple[int, Any]]:
        """Packets by their positions, each with the time that the index has there."""
        seek_tick = int(self.index.seek_ticks[np.searchsorted(self.index.keys, start)]) if self._seeks else None
        packets = self._source.packets_from(int(self.index.pts[start]), seek_tick, deadline)
        for position, pts in enumerate(self.index.pts[start : end + 1].tolist(), start):
            packet = next(packets, None)
            if packet is None or packet.pts != pts:
                if not self._seeks:
                    self._source.check_unchanged()
                    raise IndexMismatch(f"{self._source.path}: packet {position} is not that of the file's index")
                self._seeks = False
                raise _Restart
            yield position, packet

    def drop_key(self, position: int) -> None:
        """A packet is marked as a key frame, and decoding cannot start there."""
        if position == self.index.keys[0]:
            raise IndexMismatch(f"{self._source.path}: no key frame to start from")
        self.index = self.index.without_key(position)
        self._sound_of_group.clear()

    def _leave_out_undecodable_start(self, deadline: Deadline) -> None:
        """Frames that are stored after the first key frame and shown before it: a decoder shows some or none."""
        index = self.index
        key_pts = int(index.pts[index.keys[0]])
        if index.frame_pts[0] >= key_pts:
            return
        shown = set()
        self._source.rewind()
        for frame in _decoded(self._source, deadline):
            if frame.pts is None or frame.pts >= key_pts:
                break
            shown.add(frame.pts)
        kept = np.array([pts >= key_pts or pts in shown for pts in index.frame_pts.tolist()])
        self.index = replace(index, frame_pts=index.frame_pts[kept], positions=index.positions[kept])

    def _nearest_sound(self, index: int, within: range, deadline: Deadline) -> int | None:
        """Index, one of `within`, of the decodable frame nearest to one that is not; None if there is none."""
        if not self.index.is_random_access:
            return None  # every frame counted was decoded
        groups = self.index.groups
        group, first, last = (int(groups[number]) for number in (index, within[0], within[-1]))

        before = (near for number in range(group, first - 1, -1) for near in reversed(self._sound_in(number, deadline)))
        after = (near for number in range(group, last + 1) for near in self._sound_in(number, deadline))
        nearest = [
            *islice((near for near in before if near in within and near < index), 1),
            *islice((near for near in after if near in within and near > index), 1),
        ]
        return min(nearest, key=lambda near: (abs(near - index), near), default=None)

    def _sound_in(self, group: int, deadline: Deadline) -> list[int]:
        """Indices of the decodable frames of a group."""
        if group not in self._sound_of_group:  # damage stays, so it is looked for once
            first, after = np.searchsorted(self.index.groups, [group, group + 1]).tolist()
            self._sound_of_group[group] = [index for index, _ in self.decode(range(first, after), deadline)]
        return self._sound_of_group[group]


class _Run:
    """The sound frames of one run of decoding, each handed out as soon as it is known to be sound.

    A decoder flags the one picture whose bytes it could not read, and patches it up; those that are predicted from it
    look as wrong, and it hands them out as sound. Only a key frame ends that. A frame may be shown before the damaged
    picture that it is predicted from: so some are held back, no more than the decoder itself holds to order them.
    """

    def __init__(self, reader: FrameReader, start: int, checks_keys: bool) -> None:
        self._reader = reader
        self._start = start
        self._checks_keys = checks_keys
        self._start_came = False
        self._sent: dict[int, _Sent] = {}
        self._latest_pts = int(reader.index.pts[start])
        self._decoded_ahead: deque[tuple[_Sent, av.VideoFrame]] = deque()
        self._damaged: list[_Sent] = []
        """Of each group the first."""

    def sent(self, position: int, packet: Any, is_unreferenced: bool) -> None:
        """A packet is about to be decoded."""
        self._latest_pts = max(self._latest_pts, packet.pts)
        self._sent[packet.pts] = _Sent(position, packet.pts, self._latest_pts, packet.is_keyframe, is_unreferenced)
        if position == self._start and packet.is_discard:  # hidden by an edit list
            self._start_came = True
        if position in self._reader.index.damaged:
            self.mark_damaged(packet.pts)

    def mark_damaged(self, pts: int) -> None:
        """What is predicted from the frame of this time is damaged as well."""
        sent = self._sent[pts]
        if self._is_sound(sent):
            self._damaged.append(sent)

    def sound_among(self, frames: Iterable[av.VideoFrame]) -> Iterator[av.VideoFrame]:
        """Frames that are known to be sound now that these came out of the decoder, in the order they did.

        Raises:
            _Restart: the key frame at the start is none.
        """
        for frame in frames:
            sent = None if frame.pts is None else self._sent.get(frame.pts)
            if sent is None:
                continue
            if self._checks_keys:
                self._check_key(sent, frame)
            if not frame.is_corrupt:
                self._decoded_ahead.append((sent, frame))
            elif not sent.is_unreferenced:
                self.mark_damaged(sent.pts)
            while self._decoded_ahead and self._decoded_ahead[0][0].latest_pts <= sent.pts:
                yield from self._let_go()

    def rest(self) -> Iterator[av.VideoFrame]:
        """Sound frames that are still held when the decoder has no more."""
        if self._checks_keys and self._start_is_missing():
            self._reader.drop_key(self._start)
            raise _Restart
        while self._decoded_ahead:
            yield from self._let_go()

    def _let_go(self) -> Iterator[av.VideoFrame]:
        sent, frame = self._decoded_ahead.popleft()
        if self._is_sound(sent):
            yield frame

    def _check_key(self, sent: _Sent, frame: av.VideoFrame) -> None:
        """H.264 with gradual intra refresh marks pictures as key frames from which decoding merely begins to recover,
        and some muxers mark pictures that are no key frames at all."""
        self._start_came |= sent.position == self._start
        is_past_start = sent.pts > self._reader.index.pts[self._start]
        if is_past_start and self._start_is_missing():
            self._reader.drop_key(self._start)
            raise _Restart
        if sent.is_key and frame.pict_type != PictureType.I:
            self._reader.drop_key(sent.position)
            if sent.position == self._start:
                raise _Restart

    def _start_is_missing(self) -> bool:
        return not self._start_came and all(sent.position != self._start for sent in self._damaged)

    def _is_sound(self, sent: _Sent) -> bool:
        if not self._damaged:
            return True
        groups = self._groups(sent)
        return not any(
            damaged.position <= sent.position and self._groups(damaged)[0] in groups for damaged in self._damaged
        )

    def _groups(self, sent: _Sent) -> tuple[int, int]:
        """Groups of pictures that a frame refers to: its own, and that of the key frame stored before it."""
        index = self._reader.index
        stored = int(np.searchsorted(index.keys, sent.position, side="right")) - 1
        return stored - (sent.pts < index.pts[index.keys[stored]]), stored


class _Sent(NamedTuple):
    """A packet that the decoder was given."""

    position: int
    pts: int
    latest_pts: int
    """When a frame of this time or a later one is out, so are all that were sent until now."""
    is_key: bool
    is_unreferenced: bool
    """No other picture is predicted from its own."""


def _can_skip_unreferenced(codec_name: str, extradata: bytes) -> bool:
    """Whether leaving out the pictures that FFmpeg calls non-reference cannot change any other picture.

    In H.264 such a picture (nal_ref_idc 0) is not used to predict any other. In HEVC it is not used by pictures of its
    own temporal sub-layer, so this holds if there is only one sub-layer, as the file's hvcC record says. For other
    codecs it saves nothing or loses frames (AV1).
    """
    if codec_name == "hevc":
        return len(extradata) > 21 and extradata[0] == 1 and (extradata[21] >> 3) & 7 == 1
    return codec_name == "h264"


def _is_unreferenced(packet: av.Packet, codec_name: str, extradata: bytes) -> bool:
    """Whether a packet of H.264 or HEVC says that no other picture is predicted from its own.

    Its first unit with pixels says so (ITU-T H.264 and H.265, tables 7-1). False for what cannot be parsed.
    """
    data = memoryview(packet)
    is_hevc = codec_name == "hevc"
    for unit_type in _unit_headers(data, extradata, 21 if is_hevc else 4):
        if is_hevc and (number := (unit_type >> 1) & 63) < 32:
            return number < 16 and number % 2 == 0
        if not is_hevc and unit_type & 31 in (1, 2, 5):
            return unit_type & 0x60 == 0
    return False


def _unit_headers(data: memoryview, extradata: bytes, length_size_at: int) -> Iterator[int]:
    """First byte of each unit of a packet. Units follow their length, as in MP4, where `extradata` holds a record that
    says of how many bytes; else, as in MPEG-TS, start codes part them."""
    if extradata[:1] != b"\x01" or len(extradata) <= length_size_at:
        yield from (data[match.end()] for match in START_CODE.finditer(data) if match.end() < len(data))
        return
    length_size, start = (extradata[length_size_at] & 3) + 1, 0
    while start + length_size < len(data):
        length = int.from_bytes(data[start : start + length_size], "big")
        start += length_size
        if not 0 < length <= len(data) - start:
            return
        yield data[start]
        start += length


START_CODE = re.compile(rb"\x00\x00\x01")

MAX_BOXES = 10_000
"""Most boxes of an MP4 file that are looked at: 50 ms of reading. A track has a dozen, and a file few tracks."""

Span = tuple[int, int]
"""Where the contents of a box begin and end, in bytes from the start of the file."""


class _Mp4Boxes:
    """The boxes that an MP4 file is made of (ISO/IEC 14496-12). All that is read is bounded: anybody may have made it.

    Every method raises ValueError for a file that cannot be followed.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._num_left = MAX_BOXES

    def track(self, track_id: int) -> tuple[Span, Span]:
        """The first `moov` box, since FFmpeg passes over any other, and the track of this number in it."""
        for moov in self.within((0, os.fstat(self._file.fileno()).st_size), b"moov"):
            for track in self.within(moov, b"trak"):
                for header in self.within(track, b"tkhd"):
                    is_long = self.numbers(header, 0, 1)[0] >> 24
                    if self.numbers(header, 20 if is_long else 12, 1)[0] == track_id:
                        return moov, track
            break
        raise ValueError(f"no track {track_id}")

    def within(self, span: Span, kind: bytes, *inner_kinds: bytes) -> Iterator[Span]:
        """The contents of each box of a kind; with `inner_kinds`, of the boxes of those kinds in it, level by level."""
        start, end = span
        while start + 8 <= end:
            self._num_left -= 1
            if self._num_left < 0:
                raise ValueError(f"more than {MAX_BOXES} boxes")
            self._file.seek(start)
            header = self._file.read(16)
            size, header_bytes = int.from_bytes(header[:4], "big"), 8
            if size == 1:  # too large for 32 bits
                size, header_bytes = int.from_bytes(header[8:16], "big"), 16
            elif size == 0:  # up to the end
                size = end - start
            if size < header_bytes:
                raise ValueError(f"box {header[4:8]!r} at byte {start} has size {size}")
            if header[4:8] == kind:
                contents = start + header_bytes, min(start + size, end)
                yield from self.within(contents, *inner_kinds) if inner_kinds else [contents]
            start += size

    def numbers(self, span: Span, offset: int, count: int) -> list[int]:
        """So many numbers of 4 bytes in a box."""
        self._file.seek(span[0] + offset)
        return [int.from_bytes(self._file.read(4), "big") for _ in range(count)]

    def entries(self, span: Span, dtype: str, max_entries: int = MAX_PACKETS, offset: int = 4) -> npt.NDArray[Any]:
        """The table in a box: their number, at an offset after version and flags, and the entries."""
        (num_entries,), item = self.numbers(span, offset, 1), np.dtype(dtype)
        if num_entries > min(max_entries, (span[1] - span[0] - offset - 4) // item.itemsize):
            raise ValueError(f"{num_entries} entries in a box at byte {span[0]}")
        return np.frombuffer(self._file.read(num_entries * item.itemsize), item)


class _SampleTable(NamedTuple):
    """Samples of a track in decode order; times in ticks, without edits."""

    dts: Integers
    offsets: Integers
    """From the time of decoding to that of presentation."""
    keys: Integers
    sizes: Integers


EMPTY_EDIT = -1
MAX_EDITS = 1000
"""Most that are read of a track: only empty ones count for nothing, and no file has so many."""


def _sample_table(path: Path, track_id: int) -> _SampleTable | None:
    """Tables of one track of an MP4 file; None where they are not the whole truth, or cannot be followed."""
    try:
        with path.open("rb") as file:
            boxes = _Mp4Boxes(file)
            moov, track = boxes.track(track_id)
            if any(boxes.within(moov, b"mvex")) or _num_runs(boxes, track) > 1:
                return None  # fragments follow; or hidden packets have the times of shown ones
            stbl = next(boxes.within(track, b"mdia", b"minf", b"stbl"))
            common_size, num_samples = boxes.numbers(next(boxes.within(stbl, b"stsz")), 4, 2)
            if not 0 < num_samples <= MAX_PACKETS:
                return None
            sizes = np.full(num_samples, common_size)
            if not common_size:
                sizes = boxes.entries(next(boxes.within(stbl, b"stsz")), ">u4", offset=8).astype(np.int64)
            durations = _expanded(boxes.entries(next(boxes.within(stbl, b"stts")), ">u4,>i4"), num_samples)
            offsets = np.zeros(num_samples, dtype=np.int64)
            for span in boxes.within(stbl, b"ctts"):
                offsets = _expanded(boxes.entries(span, ">u4,>i4"), num_samples)
            keys = np.arange(num_samples)
            for span in boxes.within(stbl, b"stss"):
                keys = boxes.entries(span, ">u4").astype(np.int64) - 1
    except (OSError, ValueError, StopIteration):
        return None
    # FFmpeg passes no packet on for a sample without data.
    if not sizes.all() or durations.min() < 0 or not len(keys) or keys[-1] >= num_samples or np.any(np.diff(keys) <= 0):
        return None
    return _SampleTable(np.cumsum(durations) - durations, offsets, keys, sizes)


def _expanded(runs: npt.NDArray[Any], num_samples: int) -> Integers:
    """One number per sample, from (number of samples, their number)."""
    counts = runs["f0"].astype(np.int64)
    if counts.sum() != num_samples:
        raise ValueError(f"a table of {counts.sum()} entries for {num_samples} samples")
    return np.repeat(runs["f1"].astype(np.int64), counts)


def _num_runs(boxes: _Mp4Boxes, track: Span) -> int:
    """How many parts of its media a track is put together from, by its edit list."""
    for span in boxes.within(track, b"edts", b"elst"):
        dtype = ">i8,>i8,>i4" if boxes.numbers(span, 0, 1)[0] >> 24 else ">i4,>i4,>i4"
        edits = boxes.entries(span, dtype, MAX_EDITS)
        return int(np.count_nonzero(edits["f1"] != EMPTY_EDIT))
    return 1
