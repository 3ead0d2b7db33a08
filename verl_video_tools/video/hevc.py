"""Which HEVC pictures a decoder leaves out at the start of a file."""

from __future__ import annotations

from verl_video_tools.video.h264 import nal_units

RASL_TYPES = frozenset({8, 9})
"""NAL unit types of leading pictures that refer to pictures before their key frame (ITU-T H.265, table 7-1). Others
shown before their key frame (RADL) refer to it and to each other alone."""

FIRST_INTRA_TYPE = 16
"""Below it, pictures of an even type are not used to predict any other of their temporal sub-layer."""

FIRST_NON_PICTURE_TYPE = 32
"""Parameter sets and other units without pixels have this type or a higher one."""


def is_skipped_leading(packet: bytes, extradata: bytes | None) -> bool:
    """Whether a picture that is sent after the first key frame and shown before it is left out by a decoder.

    True for what cannot be parsed.
    """
    unit_type = _picture_type(packet, extradata)
    return unit_type is None or unit_type in RASL_TYPES


def is_unreferenced(packet: bytes, extradata: bytes | None) -> bool:
    """Whether a packet says that no picture of its sub-layer is predicted from its own. False if it has none."""
    unit_type = _picture_type(packet, extradata)
    return unit_type is not None and unit_type < FIRST_INTRA_TYPE and unit_type % 2 == 0


def _picture_type(packet: bytes, extradata: bytes | None) -> int | None:
    """NAL unit type of the first unit with pixels, None if there is none."""
    record = extradata or b""
    is_hvcc = record[:1] == b"\x01" and len(record) > 22
    for unit in nal_units(packet, (record[21] & 3) + 1 if is_hvcc else None):
        unit_type = (unit[0] >> 1) & 63
        if unit_type < FIRST_NON_PICTURE_TYPE:
            return unit_type
    return None
