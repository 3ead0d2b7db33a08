"""The boxes that an MP4 file is made of (ISO/IEC 14496-12, 4.2), for what FFmpeg does not tell of them.

They are read in the process that trains, from files that anybody may have made: all that is read is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

HEADER_BYTES = 8
HANDLER_OFFSET = 8
"""Of the handler type in an `hdlr` box, after version, flags and a reserved field."""

MAX_BOXES = 10_000
"""Most boxes that are looked at in one file: 50 ms of reading. A track has a dozen, and a file few tracks."""

Span = tuple[int, int]
"""Where the contents of a box begin and end, in bytes from the start of the file."""


class Mp4Boxes:
    """The boxes of an open file. Every method raises ValueError for a file that cannot be followed.

    Args:
        max_bytes: most bytes of contents that are read, all calls together.
    """

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._num_bytes_left = max_bytes
        self._num_boxes_left = MAX_BOXES

    def tracks(self) -> Iterator[Span]:
        """Those of the first `moov` box: FFmpeg passes over any other.

        Raises:
            ValueError: there is none.
        """
        moov = next(self.within((0, os.fstat(self._file.fileno()).st_size), b"moov"), None)
        if moov is None:
            raise ValueError("no moov box")
        yield from self.within(moov, b"trak")

    def within(self, span: Span, kind: bytes, *inner_kinds: bytes) -> Iterator[Span]:
        """The contents of each box of a kind; with `inner_kinds`, of the boxes of those kinds in it, level by level."""
        start, end = span
        while start + HEADER_BYTES <= end:
            if self._num_boxes_left == 0:
                raise ValueError(f"more than {MAX_BOXES} boxes")
            self._num_boxes_left -= 1
            self._file.seek(start)
            header = self._file.read(2 * HEADER_BYTES)
            size, header_bytes = int.from_bytes(header[:4], "big"), HEADER_BYTES
            if size == 1:  # too large for 32 bits
                size, header_bytes = int.from_bytes(header[8:16], "big"), 2 * HEADER_BYTES
            elif size == 0:  # up to the end
                size = end - start
            if size < header_bytes:
                raise ValueError(f"box {header[4:8]!r} at byte {start} has size {size}")
            if header[4:8] == kind:
                contents = start + header_bytes, min(start + size, end)
                if inner_kinds:
                    yield from self.within(contents, *inner_kinds)
                else:
                    yield contents
            start += size

    def read(self, span: Span, offset: int, num_bytes: int) -> bytes:
        """Contents of a box from an offset on.

        Raises:
            ValueError: the box holds fewer bytes, or they are more than may be read.
        """
        start, end = span
        if num_bytes > end - start - offset:
            raise ValueError(f"a box of {end - start} bytes has none at {offset + num_bytes}")
        if num_bytes > self._num_bytes_left:
            raise ValueError(f"{num_bytes} bytes are more than are read")
        self._num_bytes_left -= num_bytes
        self._file.seek(start + offset)
        data = self._file.read(num_bytes)
        if len(data) < num_bytes:
            raise ValueError("the file ends within a box")
        return data

    def is_video(self, track: Span) -> bool:
        handler = next(self.within(track, b"mdia", b"hdlr"), None)
        return handler is not None and self.read(handler, HANDLER_OFFSET, 4) == b"vide"
