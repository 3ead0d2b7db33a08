"""Which rows are about the same video, though its files have other names or places.

A video is known by its file's name without folder and suffix, by the YouTube id in that name, and, where the file is
there, by its content: size, first and last mebibyte. A YouTube URL stands for a file that is named after its id. Where
the name says only which piece of a video it is, such as "split_1", the folder's name counts.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

logger = logging.getLogger(__name__)

VIDEO_SUFFIXES = frozenset(
    f".{name}" for name in ("mp4", "m4v", "mov", "mkv", "webm", "avi", "flv", "ts", "m2ts", "mts", "mpg", "mpeg", "wmv")
)


class Sign(StrEnum):
    """By what a video is known again, the surest last."""

    NAME = "name"
    """The file's name as `video_name` gives it, with that of its folder where it names only a piece of a video. A name
    that ends in the seconds of a clip counts without them as well."""
    YOUTUBE = "youtube"
    """The YouTube id in the name of the file, or of the folder of its pieces, or of a URL."""
    CONTENT = "content"
    """Size, first and last mebibyte of the file."""


SIGNS: tuple[Sign, ...] = tuple(Sign)

Identity = tuple[Sign, str]

_EDGE_BYTES = 1 << 20
_PIECE = "(?:scene|clip|split|part|seg|segment|shot|chunk|trim)"
# "dQw4w9WgXcQ", "v_dQw4w9WgXcQ", "ytb_dQw4w9WgXcQ", with what tools that cut or fetch videos write after it:
# "_10_25.5" (the decimals are one more tail), "-Scene-001", "-720p", ".f137".
_BARE_ID = re.compile(rf"(?:v_|ytb_|yt_)?([\w-]{{11}})(?:[_.-](?:\d+p?|f\d+|(?i:{_PIECE})\d*))*", re.ASCII)
_ONLY_A_PIECE = re.compile(rf"(?i:{_PIECE})(?:[_.-]?\d+)*", re.ASCII)  # "split_1", "Scene-001", "part2"
_TIMED_CLIP = re.compile(r"(.+)_(\d+(?:\.\d+)?)_(\d+(?:\.\d+)?)", re.ASCII | re.DOTALL)  # "RPY8D_0.0_15.2"
_WORDS = re.compile(r"(?:[A-Z]?[a-z]{2,}|[A-Z]{2,}|\d+|[_-])+", re.ASCII)  # "TrainVideos", "VideoClips1"
_YOUTUBE_URL = re.compile(
    r"(?:https?://)?(?:[\w-]+\.)*(?:youtu\.be/|youtube(?:-nocookie)?\.com/(?:(?:embed|live|shorts|v)/|watch\?(?:.*&)?v=))"
    r"([\w-]{11})(?![\w-])",
    re.ASCII,
)
_ID_IN_BRACKETS = re.compile(r"\[([\w-]{11})\]$", re.ASCII)  # as yt-dlp names its files


def video_name(path: str) -> str:
    """The file's name without folder and the suffix of a video, if it has one; the id of a YouTube URL."""
    if (url := _YOUTUBE_URL.match(path)) is not None:
        return url[1]
    file = Path(path)
    return file.stem if file.suffix.lower() in VIDEO_SUFFIXES else file.name


def youtube_id(path: str) -> str | None:
    """The YouTube id of a URL, or that a file is named after, as data sets write it; None if there is none.

    Eleven characters could be any word; an id is taken for one if it has both capital and small letters, as 99 of 100
    have. The others are still known by their file's name. Where that names only a piece of a video, the folder's name
    is asked. Folders are often called "TrainVideos", and files "SampleVideo_clip_3": what reads as words is no id
    there, though 6 of 100 ids do.
    """
    if (url := _YOUTUBE_URL.match(path)) is not None:
        return url[1]
    name = video_name(path)
    if _ONLY_A_PIECE.fullmatch(name) is None:
        return _id_in(name)
    found = _id_in(Path(path).parent.name)
    return None if found is None or _WORDS.fullmatch(found) else found


def _id_in(name: str) -> str | None:
    match = _BARE_ID.fullmatch(name) or _ID_IN_BRACKETS.search(name)
    if match is None:
        return None
    found, names_a_piece = match[1], re.search("[a-zA-Z]", name[match.end(1) :]) is not None
    if names_a_piece and _WORDS.fullmatch(found):
        return None
    return found if re.search("[a-z]", found) and re.search("[A-Z]", found) else None


def identities(paths: Iterable[str], signs: Sequence[Sign] = SIGNS) -> dict[str, frozenset[Identity]]:
    """What each video is known by. Two paths that share an identity are the same video.

    Files are read only where two of the same size are among `paths`: others cannot be equal.
    """
    found: dict[str, set[Identity]] = {path: set() for path in paths}
    for path, known_by in found.items():
        if Sign.NAME in signs:
            known_by.update((Sign.NAME, name) for name in _names(path))
        if Sign.YOUTUBE in signs and (found_id := youtube_id(path)) is not None:
            known_by.add((Sign.YOUTUBE, found_id))
    if Sign.CONTENT in signs:
        for path, digest in _digests(found).items():
            found[path].add((Sign.CONTENT, digest))
    return {path: frozenset(known_by) for path, known_by in found.items()}


def _names(path: str) -> Iterator[str]:
    """The names that a path is known by."""
    whole = video_name(path)
    names = [whole]
    if (clip := _TIMED_CLIP.fullmatch(whole)) is not None:
        _, start, end = clip.groups()
        if "." in start + end and float(start) < float(end):  # whole numbers count frames, parts, days as well
            names.append(clip[1])
    folder = Path(path).parent.name
    for name in names:
        yield f"{folder}/{name}" if folder and _ONLY_A_PIECE.fullmatch(name) else name


def same_video(known_by: Mapping[str, frozenset[Identity]], together: Iterable[Sequence[str]] = ()) -> list[list[str]]:
    """The paths, grouped by video: what is linked by a chain of shared identities is one. Groups are in order of
    their first path, and paths in theirs.

    Args:
        together: paths to be taken for one video, whatever they are known by.
    """
    leader: dict[str | Identity, str | Identity] = {}

    def find(node: str | Identity) -> str | Identity:
        while (above := leader.setdefault(node, node)) != node:
            leader[node] = node = leader[above]  # halves the way for the next one
        return node

    for path, signs in known_by.items():
        for sign in signs:
            leader[find(sign)] = find(path)
    for first, *others in together:
        for path in others:
            leader[find(path)] = find(first)
    groups: dict[str | Identity, list[str]] = defaultdict(list)
    for path in known_by:
        groups[find(path)].append(path)
    return list(groups.values())


def _digests(paths: Iterable[str]) -> dict[str, str]:
    by_size: dict[int, list[str]] = defaultdict(list)
    for path in paths:
        try:
            by_size[os.path.getsize(path)].append(path)
        except (OSError, ValueError):
            continue  # not there, or no path, with a NUL in it: known by its name only
    found: dict[str, str] = {}
    for size, alike in by_size.items():
        for path in alike if len(alike) > 1 else ():
            try:
                found[path] = _digest(path, size)
            except OSError as error:
                logger.warning("%s cannot be read and is known by its name only: %s", path, error.strerror)
    return found


def _digest(path: str, size: int) -> str:
    digest = hashlib.sha256(size.to_bytes(8, "big"))
    with open(path, "rb") as file:
        digest.update(file.read(_EDGE_BYTES))
        file.seek(max(0, size - _EDGE_BYTES))
        digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()
