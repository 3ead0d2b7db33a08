"""How many edits an MP4 file makes, from the headers of its boxes (ISO/IEC 14496-12, 8.6.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PARENTS_OF_EDIT_LIST = frozenset({b"moov", b"trak", b"edts"})
EMPTY_EDIT = -1


def max_edits(path: Path) -> int | None:
    """Stretches of media that the track with most of them is put together from; None if the file cannot be followed.

    A track without an edit list is shown from start to end and counts as one stretch.
    """
    most = 1
    try:
        with path.open("rb") as file:
            for payload, end in _edit_lists(file, 0, path.stat().st_size):
                most = max(most, _num_edits(file, payload, end))
    except (OSError, ValueError):
        return None
    return most


def _edit_lists(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the contents of each edit list begin and end."""
    while start + 8 <= end:
        file.seek(start)
        header = file.read(16)
        size, name, payload = int.from_bytes(header[:4], "big"), header[4:8], start + 8
        if size == 1:  # the size follows, in eight bytes
            size, payload = int.from_bytes(header[8:16], "big"), start + 16
        elif size == 0:  # up to the end
            size = end - start
        if start + size < payload:
            raise ValueError(f"box {name!r} at byte {start} has size {size}")
        if name in PARENTS_OF_EDIT_LIST:
            yield from _edit_lists(file, payload, min(start + size, end))
        elif name == b"elst":
            yield payload, start + size
        start += size


def _num_edits(file: BinaryIO, payload: int, end: int) -> int:
    file.seek(payload)
    data = file.read(end - payload)
    field_bytes = 8 if data[:1] == b"\x01" else 4
    entry_bytes = 2 * field_bytes + 4  # duration, media time, rate
    count = int.from_bytes(data[4:8], "big")
    if len(data) < 8 + count * entry_bytes:
        raise ValueError(f"an edit list of {count} entries has {len(data)} bytes")
    media_times = [8 + number * entry_bytes + field_bytes for number in range(count)]
    return sum(
        int.from_bytes(data[place : place + field_bytes], "big", signed=True) != EMPTY_EDIT for place in media_times
    )
