"""Parts of videos, named as media fragments (W3C Media Fragments URI 1.0): `video.mp4#t=5,10` is what `video.mp4` shows
from second 5 to second 10.

Such a name stands wherever the path of a video does, so that rows, records, caches and viewers need to know nothing
of clips. What opens it is `video.Video`.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_SECONDS = r"\d{1,9}(?:\.\d{1,9})?"
_FRAGMENT = re.compile(rf"(?s)(.*)#t=({_SECONDS}),({_SECONDS})")


class Clip(NamedTuple):
    """A file, and the part of it that is meant."""

    file: str
    seconds: tuple[float, float] | None
    """Start and end, from the file's first frame: the frames that begin in [start, end). None: all of it."""


def clip_path(file: str | os.PathLike[str], start_seconds: float, end_seconds: float) -> str:
    """The name of a part of a file; times in milliseconds.

    Raises:
        ValueError: it does not begin before it ends.
    """
    if not 0 <= start_seconds < end_seconds:
        raise ValueError(f"a clip takes 0 <= start < end in seconds, got {start_seconds} and {end_seconds}")
    times = (f"{seconds:.3f}".rstrip("0").rstrip(".") for seconds in (start_seconds, end_seconds))
    return f"{os.fspath(file)}#t={','.join(times)}"


def read_clip(path: str | os.PathLike[str]) -> Clip:
    """What a path names; a path without such an end names all of its file."""
    text = os.fspath(path)
    found = _FRAGMENT.fullmatch(text)
    if found is None:
        return Clip(text, None)
    return Clip(found[1], (float(found[2]), float(found[3])))
