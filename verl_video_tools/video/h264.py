"""What an H.264 packet that is marked as a key frame really is; and the units that packets of H.264 and HEVC hold.

A stream with gradual intra refresh marks pictures as key frames from which decoding merely *begins to recover*, and
some muxers mark pictures that are no key frames at all. Both show in the slice types: only pictures made of intra
slices can be decoded without any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SLICE, SLICE_PARTITION_A, IDR_SLICE = 1, 2, 5
"""NAL unit types (ITU-T H.264, table 7-1)."""

INTRA_SLICE_TYPES = frozenset({2, 4})
"""I and SI, modulo 5 (table 7-6)."""

HEADER_BYTES = 10
"""Unit type and both numbers fit into so many, and no emulation prevention byte comes among them: that would take a
picture of 65,000 macroblocks."""

START_CODE = re.compile(rb"\x00\x00\x01")


def has_inter_slices(packet: bytes, extradata: bytes | None) -> bool:
    """Whether a packet holds slices that are predicted from other pictures. False for what cannot be parsed."""
    record = extradata or b""
    is_avcc = record[:1] == b"\x01" and len(record) > 4
    for unit in nal_units(packet, (record[4] & 3) + 1 if is_avcc else None):
        unit_type = unit[0] & 31
        if unit_type == IDR_SLICE:
            return False
        if unit_type in (SLICE, SLICE_PARTITION_A) and _slice_type(unit) % 5 not in INTRA_SLICE_TYPES:
            return True
    return False


def is_unreferenced(packet: bytes, extradata: bytes | None) -> bool:
    """Whether a packet says that no other picture is predicted from its own. False for what cannot be parsed."""
    record = extradata or b""
    is_avcc = record[:1] == b"\x01" and len(record) > 4
    for unit in nal_units(packet, (record[4] & 3) + 1 if is_avcc else None):
        if unit[0] & 31 in (SLICE, SLICE_PARTITION_A, IDR_SLICE):
            return unit[0] & 0x60 == 0
    return False


def nal_units(packet: bytes, length_size: int | None) -> Iterator[bytes]:
    """The beginning of each unit, far enough to hold the numbers that are read from it.

    Args:
        length_size: bytes of the length before each unit, as in MP4; None where start codes part them, as in MPEG-TS.
    """
    if length_size is not None:
        start = 0
        while start + length_size < len(packet):
            length = int.from_bytes(packet[start : start + length_size], "big")
            start += length_size
            if not 0 < length <= len(packet) - start:
                return
            yield packet[start : start + min(length, HEADER_BYTES)]
            start += length
    else:
        for match in START_CODE.finditer(packet):
            if match.end() < len(packet):
                yield packet[match.end() : match.end() + HEADER_BYTES]


def _slice_type(unit: bytes) -> int:
    """Second number of the slice header, after `first_mb_in_slice`; both are Exp-Golomb codes."""
    bits = "".join(f"{byte:08b}" for byte in unit[1:])
    value = -1
    for _ in range(2):
        num_zeros = len(bits) - len(bits.lstrip("0"))
        value = int(bits[num_zeros : 2 * num_zeros + 1] or "0", 2) - 1
        bits = bits[2 * num_zeros + 1 :]
    return value
