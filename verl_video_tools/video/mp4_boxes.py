"""What FFmpeg does not tell of an MP4 file: whether its video track has an edit list (ISO/IEC 14496-12, 8.6.6)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

HEADER_BYTES = 8
HANDLER_OFFSET = 8
"""Of the handler type in an `hdlr` box, after version, flags and a reserved field."""


def has_edit_list(path: Path) -> bool:
    """Whether a video track has an edit list. Most have one, if only to make up for the delay of reordered frames."""
    with path.open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        for moov in _boxes(file, b"moov", 0, end):
            for track in _boxes(file, b"trak", *moov):
                if _is_video(file, track) and any(
                    True for edits in _boxes(file, b"edts", *track) for _ in _boxes(file, b"elst", *edits)
                ):
                    return True
    return False


def _is_video(file: BinaryIO, track: tuple[int, int]) -> bool:
    for media in _boxes(file, b"mdia", *track):
        for start, _ in _boxes(file, b"hdlr", *media):
            file.seek(start + HANDLER_OFFSET)
            return file.read(4) == b"vide"
    return False


def _boxes(file: BinaryIO, kind: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the contents of each box of a kind that lies between two offsets."""
    while start + HEADER_BYTES <= end:
        file.seek(start)
        header = file.read(2 * HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return
        size, header_bytes = int.from_bytes(header[:4], "big"), HEADER_BYTES
        if size == 1:  # too large for 32 bits
            size, header_bytes = int.from_bytes(header[8:16], "big"), 2 * HEADER_BYTES
        elif size == 0:  # up to the end
            size = end - start
        if size < header_bytes:
            return
        if header[4:8] == kind:
            yield start + header_bytes, min(start + size, end)
        start += size
