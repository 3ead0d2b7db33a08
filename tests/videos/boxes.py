"""MP4 files whose boxes say something else than their writer said."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import av

SAMPLE_TABLE = (b"moov", b"trak", b"mdia", b"minf", b"stbl")


def with_box(source: Path, target: Path, parents: Sequence[bytes], kind: bytes, contents: bytes) -> Path:
    """Copy a file (index last, one track) with other contents of a box."""
    data = bytearray(source.read_bytes())
    place = data.index(kind) - 4
    new = struct.pack(">I4s", 8 + len(contents), kind) + contents
    grown = len(new) - int.from_bytes(data[place : place + 4], "big")
    for name in parents:
        _add(data, data.index(name) - 4, grown)
    data[place : place + len(new) - grown] = new
    target.write_bytes(data)
    return target


def repeat_a_time(source: Path, target: Path, sample: int) -> Path:
    """Copy a file, of 3000 ticks per frame, in which this sample and the one after it have one time of decoding."""
    num_samples = read_number(source, b"stsz", 8)
    runs = [(sample, 3000), (1, 0), (num_samples - sample - 1, 3000)]
    times = struct.pack(">II", 0, len(runs)) + b"".join(struct.pack(">II", *run) for run in runs)
    return with_box(source, target, SAMPLE_TABLE, b"stts", times)


def empty_a_sample(source: Path, target: Path, from_sample: int) -> int:
    """Copy a file (index last, one chunk) in which a picture that no other refers to has lost its data.

    Returns:
        Number of the sample, in order of decoding.
    """
    with av.open(str(source)) as container:
        entries = container.streams.video[0].index_entries
        places = [(entry.pos, entry.size) for entry in entries]
    data = bytearray(source.read_bytes())
    assert read_number(source, b"stco", 4) == 1
    # After a length of 4 bytes the unit's type: its upper bits are 0 in such a picture.
    sample = next(number for number in range(from_sample, len(places)) if not data[places[number][0] + 4] & 0x60)
    entry = data.index(b"stsz") + 16 + 4 * sample
    data[entry : entry + 4] = bytes(4)
    start, size = places[sample]
    _add(data, data.index(b"mdat") - 4, -size)
    del data[start : start + size]
    target.write_bytes(data)
    return sample


def read_number(path: Path, kind: bytes, offset: int) -> int:
    """Four bytes of a box, counted from the end of its header."""
    data = path.read_bytes()
    place = data.index(kind) + 4 + offset
    return int.from_bytes(data[place : place + 4], "big")


def _add(data: bytearray, place: int, number: int) -> None:
    data[place : place + 4] = (int.from_bytes(data[place : place + 4], "big") + number).to_bytes(4, "big")
