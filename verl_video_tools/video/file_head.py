"""What the first bytes of a file tell: why it is no video, and how much of its end is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_HEAD_BYTES = 512
_MAX_BOXES = 64
"""Most boxes of an MP4 file that are looked at; a fragmented one has thousands, whose end is then not looked for."""

_MP4_FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def why_no_video(path: Path) -> str | None:
    """What a file is that FFmpeg refuses, in words; None where its first bytes do not tell."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        if not head:
            return "the file is empty"
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        if text.startswith(b"version https://git-lfs"):
            return "it is a Git LFS pointer, not the video; run `git lfs pull`"
        if text.startswith((b"<!doctype html", b"<html")):
            return "it is a web page, not a video; what its link answers has to be looked at in a browser"
        if head[4:8] in _MP4_FIRST_BOXES and b"moov" not in (name for name, _ in _boxes(file, 0)):
            return "the MP4 has no table of its frames (moov); the download or the recording broke off"
    return None


def missing_bytes(path: Path) -> int:
    """By how many bytes an MP4, MOV, Matroska or WebM file is shorter than it says; 0 for other containers.

    FFmpeg takes such a file for a shorter video.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        if head[4:8] in _MP4_FIRST_BOXES:
            declared = max((end for _, end in _boxes(file, 0)), default=0)
        else:
            declared = _matroska_end(head)
        return max(0, declared - file.seek(0, 2))


def _boxes(file: BinaryIO, start: int) -> Iterator[tuple[bytes, int]]:
    """Type and end, in bytes from the start of the file, of each box of the top level."""
    for _ in range(_MAX_BOXES):
        file.seek(start)
        header = file.read(16)
        if len(header) < 8:
            return
        size = int.from_bytes(header[:4], "big")
        if size == 1:  # a longer size follows the type
            size = int.from_bytes(header[8:], "big")
        if size < 8:  # 0: up to the end of the file
            yield header[4:8], start
            return
        start += size
        yield header[4:8], start


def _matroska_end(head: bytes) -> int:
    """Where the segment of a Matroska file ends, in bytes; 0 if the file does not say, as a live recording."""
    if not head.startswith(_EBML):
        return 0
    start, size = _element_size(head, len(_EBML))
    start += size or 0
    if head[start : start + len(_SEGMENT)] != _SEGMENT:
        return 0
    start, size = _element_size(head, start + len(_SEGMENT))
    return 0 if size is None else start + size


def _element_size(data: bytes, start: int) -> tuple[int, int | None]:
    """Where an element's content begins, and its size in bytes; None if unknown (all bits set)."""
    if start >= len(data) or not data[start]:
        return start, None
    length = 9 - data[start].bit_length()
    bits = 7 * length
    size = int.from_bytes(data[start : start + length], "big") & ((1 << bits) - 1)
    return start + length, None if size == (1 << bits) - 1 else size
