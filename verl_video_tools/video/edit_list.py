"""What FFmpeg does not tell of an MP4 file: its edit lists, from the headers of its boxes (ISO/IEC 14496-12, 8.6.6)."""

from __future__ import annotations

from pathlib import Path

from verl_video_tools.video.mp4_boxes import Mp4Boxes, Span

HEADER_BYTES = 8
"""Of an `elst` box's contents: version, flags, number of entries."""
EMPTY_EDIT = -1

MAX_BYTES = 1 << 20
"""Most that is read of a file's edit lists: 50,000 edits and more."""


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


def max_edits(path: Path) -> int | None:
    """Stretches of media that the track with most of them is put together from; None if the file cannot be followed.

    A track without an edit list is shown from start to end and counts as one stretch.
    """
    try:
        with path.open("rb") as file:
            boxes = Mp4Boxes(file, MAX_BYTES)
            edits = [
                _num_edits(boxes, edits) for track in boxes.tracks() for edits in boxes.within(track, b"edts", b"elst")
            ]
    except (OSError, ValueError):
        return None
    return max([1, *edits])


def _num_edits(boxes: Mp4Boxes, edits: Span) -> int:
    header = boxes.read(edits, 0, HEADER_BYTES)
    field_bytes = 8 if header[0] == 1 else 4
    entry_bytes = 2 * field_bytes + 4  # duration, media time, rate
    count = int.from_bytes(header[4:], "big")
    data = boxes.read(edits, HEADER_BYTES, count * entry_bytes)
    media_times = range(field_bytes, len(data), entry_bytes)
    return sum(
        int.from_bytes(data[place : place + field_bytes], "big", signed=True) != EMPTY_EDIT for place in media_times
    )
