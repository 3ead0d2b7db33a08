"""Whether an MP4 file's table of sample sizes (ISO/IEC 14496-12, 8.7.3) names samples without data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verl_video_tools.video.mp4_boxes import Mp4Boxes, Span
from verl_video_tools.video.source import MAX_PACKETS

HEADER_BYTES = 12
"""Of an `stsz` box's contents: version, flags, the size that all samples have (0: a table follows), their number."""
ENTRY_BYTES = 4


def all_samples_hold_data(path: Path) -> bool:
    """Whether no video track has a sample without data: FFmpeg counts it in its index, but passes no packet on for it.

    Not told from FFmpeg's index, where looking at every entry takes longer than all the rest of opening the file. False
    where the file cannot be followed.
    """
    try:
        with path.open("rb") as file:
            boxes = Mp4Boxes(file, MAX_PACKETS * ENTRY_BYTES)
            videos = [track for track in boxes.tracks() if boxes.is_video(track)]
            return bool(videos) and all(_hold_data(boxes, track) for track in videos)
    except (OSError, ValueError):
        return False


def _hold_data(boxes: Mp4Boxes, track: Span) -> bool:
    sizes = next(boxes.within(track, b"mdia", b"minf", b"stbl", b"stsz"), None)
    if sizes is None:
        return False  # sizes of less than a byte each (`stz2`)
    header = boxes.read(sizes, 0, HEADER_BYTES)
    if any(header[4:8]):
        return True
    table = boxes.read(sizes, HEADER_BYTES, int.from_bytes(header[8:], "big") * ENTRY_BYTES)
    return bool(np.all(np.frombuffer(table, dtype=">u4")))
