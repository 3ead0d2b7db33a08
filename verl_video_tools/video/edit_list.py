"""What FFmpeg does not tell of an MP4 file: its edit lists, from the headers of its boxes (ISO/IEC 14496-12, 8.6.6)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

HEADER_BYTES = 8
HANDLER_OFFSET = 8
"""Of the handler type in an `hdlr` box, after version, flags and a reserved field."""
EMPTY_EDIT = -1

Span = tuple[int, int]
"""Where the contents of a box begin and end, in bytes from the start of the file."""


def has_edit_list(path: Path) -> bool:
    """Whether a video track has an edit list. Most have one, if only to make up for the delay of reordered frames.

    False where the file cannot be followed.
    """
    try:
        with path.open("rb") as file:
            return any(_is_video(file, track) and any(_edit_lists(file, track)) for track in _tracks(file))
    except (OSError, ValueError):
        return False


def max_edits(path: Path) -> int | None:
    """Stretches of media that the track with most of them is put together from; None if the file cannot be followed.

    A track without an edit list is shown from start to end and counts as one stretch.
    """
    try:
        with path.open("rb") as file:
            edits = [_num_edits(file, edits) for track in _tracks(file) for edits in _edit_lists(file, track)]
    except (OSError, ValueError):
        return None
    return max([1, *edits])


def _tracks(file: BinaryIO) -> Iterator[Span]:
    for moov in _boxes(file, b"moov", (0, os.fstat(file.fileno()).st_size)):
        yield from _boxes(file, b"trak", moov)


def _is_video(file: BinaryIO, track: Span) -> bool:
    for media in _boxes(file, b"mdia", track):
        for start, _ in _boxes(file, b"hdlr", media):
            file.seek(start + HANDLER_OFFSET)
            return file.read(4) == b"vide"
    return False


def _edit_lists(file: BinaryIO, track: Span) -> Iterator[Span]:
    for edits in _boxes(file, b"edts", track):
        yield from _boxes(file, b"elst", edits)


def _boxes(file: BinaryIO, kind: bytes, within: Span) -> Iterator[Span]:
    """The contents of each box of a kind. Raises ValueError where a box is shorter than its header."""
    start, end = within
    while start + HEADER_BYTES <= end:
        file.seek(start)
        header = file.read(2 * HEADER_BYTES)
        size, header_bytes = int.from_bytes(header[:4], "big"), HEADER_BYTES
        if size == 1:  # too large for 32 bits
            size, header_bytes = int.from_bytes(header[8:16], "big"), 2 * HEADER_BYTES
        elif size == 0:  # up to the end
            size = end - start
        if size < header_bytes:
            raise ValueError(f"box {header[4:8]!r} at byte {start} has size {size}")
        if header[4:8] == kind:
            yield start + header_bytes, min(start + size, end)
        start += size


def _num_edits(file: BinaryIO, edits: Span) -> int:
    file.seek(edits[0])
    data = file.read(edits[1] - edits[0])
    field_bytes = 8 if data[:1] == b"\x01" else 4
    entry_bytes = 2 * field_bytes + 4  # duration, media time, rate
    count = int.from_bytes(data[4:8], "big")
    if len(data) < 8 + count * entry_bytes:
        raise ValueError(f"an edit list of {count} entries has {len(data)} bytes")
    media_times = [8 + number * entry_bytes + field_bytes for number in range(count)]
    return sum(
        int.from_bytes(data[place : place + field_bytes], "big", signed=True) != EMPTY_EDIT for place in media_times
    )
