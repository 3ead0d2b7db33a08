"""Segments of any file with reliable times, from one pass over its packets (nothing is decoded)."""

from __future__ import annotations

import numpy as np

from verl_video_tools.core.errors import UnreadableVideoError
from verl_video_tools.video.segments import PacketRow, PacketsUnusable, SegmentTable, make_segment, read_row
from verl_video_tools.video.source import Deadline, VideoSource


def segments_of_packets(source: VideoSource, deadline: Deadline) -> SegmentTable:
    """Read every packet from the present position, the start of the file.

    Raises:
        PacketsUnusable: a packet lacks a time, two have the same, or no key frame is marked, or time
            runs backwards.
        UnreadableVideoError: the stream holds no packets.
    """
    rows: list[PacketRow] = []
    first_key_pts, num_keys = None, 0
    for packet in source.packets(deadline):
        if packet.is_keyframe:
            num_keys += 1
            first_key_pts = packet.pts if num_keys == 1 else None
        rows.append(read_row(source, packet, begins_segment=packet.is_keyframe, first_key_pts=first_key_pts))
    if not rows:
        raise UnreadableVideoError(f"{source.path}: the video stream holds no frames")
    if any(row.pts is None for row in rows):
        raise PacketsUnusable
    pts = np.array([row.pts for row in rows], dtype=np.int64)
    if len(np.unique(pts)) != len(pts):
        raise PacketsUnusable
    starts = np.flatnonzero([row.is_keyframe for row in rows])
    if len(starts) == 0:
        raise PacketsUnusable
    # All that is sent before a key frame must be shown before all that is sent from it on; a clock that jumps back
    # breaks this. What precedes the first key frame (a recording joined midway) cannot be decoded and is left out.
    latest_until = np.maximum.accumulate(pts)
    earliest_from = np.minimum.accumulate(pts[::-1])[::-1]
    if np.any(latest_until[starts[1:] - 1] >= earliest_from[starts[1:]]):
        raise PacketsUnusable
    ends = np.append(starts[1:], len(rows))
    segments = [
        make_segment(
            source,
            rows[start:end],
            seek_tick=int(pts[start]),
            is_first=number == 0,
            follows_corrupt=start > 0 and rows[start - 1].is_corrupt,
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return SegmentTable(
        lower_pts=earliest_from[starts],
        counts=np.array([len(segment.frame_pts) for segment in segments], dtype=np.int64),
        loaded=dict(enumerate(segments)),
    )
