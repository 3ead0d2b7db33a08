"""What FFmpeg does not tell of an MP4 file: its edit lists and sample sizes (ISO/IEC 14496-12, 8.6.6 and 8.7.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verl_video_tools.video.mp4_boxes import Mp4Boxes, Span
from verl_video_tools.video.source import MAX_PACKETS

EDITS_HEADER_BYTES = 8
"""Of an `elst` box's contents: version, flags, number of entries."""
EMPTY_EDIT = -1
MAX_EDITS = 1000
"""Most that are read of a track: only empty ones count for nothing, and no file has so many."""

SIZES_HEADER_BYTES = 12
"""Of an `stsz` box's contents: version, flags, the size that all samples have (0: a table follows), their number."""
SIZE_BYTES = 4

MAX_BYTES = MAX_PACKETS * SIZE_BYTES
"""Most that is read of a file's tables."""


def has_edit_list(path: Path) -> bool:
    """Whether a video track has an edit list. Most have one, if only to make up for the delay of reordered frames.

    False where the file cannot be followed.
    """
    try:
        with path.open("rb") as file:
            boxes = Mp4Boxes(file, MAX_BYTES)
            return any(boxes.is_video(track) and any(boxes.within(track, b"edts", b"elst")) for track in boxes.tracks())
    except (OSError, ValueError):
        return False


def is_one_whole_stretch(path: Path) -> bool:
    """Whether no track is put together from several stretches of media, and no video has a sample without data: FFmpeg
    counts that in its index, but passes no packet on for it.

    Not told from FFmpeg's index, where looking at every entry takes longer than all the rest of opening the file. False
    where the file cannot be followed.
    """
    try:
        with path.open("rb") as file:
            boxes = Mp4Boxes(file, MAX_BYTES)
            tracks = list(boxes.tracks())
            videos = [track for track in tracks if boxes.is_video(track)]
            edit_lists = [edits for track in tracks for edits in boxes.within(track, b"edts", b"elst")]
            return (
                bool(videos)
                and all(_is_one_stretch(boxes, edits) for edits in edit_lists)
                and all(_all_samples_hold_data(boxes, track) for track in videos)
            )
    except (OSError, ValueError):
        return False


def _is_one_stretch(boxes: Mp4Boxes, edits: Span) -> bool:
    header = boxes.read(edits, 0, EDITS_HEADER_BYTES)
    count = int.from_bytes(header[4:], "big")
    if count > MAX_EDITS:
        return False
    field = ">i8" if header[0] == 1 else ">i4"
    entry = np.dtype([("duration", field), ("media_time", field), ("rate", ">i4")])
    entries = np.frombuffer(boxes.read(edits, EDITS_HEADER_BYTES, count * entry.itemsize), entry)
    return int(np.count_nonzero(entries["media_time"] != EMPTY_EDIT)) <= 1


def _all_samples_hold_data(boxes: Mp4Boxes, track: Span) -> bool:
    sizes = next(boxes.within(track, b"mdia", b"minf", b"stbl", b"stsz"), None)
    if sizes is None:
        return False  # sizes of less than a byte each (`stz2`)
    header = boxes.read(sizes, 0, SIZES_HEADER_BYTES)
    if any(header[4:8]):
        return True
    table = boxes.read(sizes, SIZES_HEADER_BYTES, int.from_bytes(header[8:], "big") * SIZE_BYTES)
    return bool(np.all(np.frombuffer(table, dtype=">u4")))
