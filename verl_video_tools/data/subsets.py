"""Two parts of a file of rows without a common video.

Rows are about the same video though its files have other names or places. A video is known by its file's name without
folder, suffix and the seconds of a clip, by the YouTube id in that name, and, where the file is there, by its content:
size, first and last mebibyte. Where the name says only which piece of a video it is, such as "split_1", the folder's
name counts.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.sample import all_media_of, read_clip
from verl_video_tools.data.formats.entries import VIDEO_SUFFIXES
from verl_video_tools.data.parquet import read_column, read_table, with_texts, write_table

_EDGE_BYTES = 1 << 20
_TEXT = "\0text "
"""What no path begins with."""
_PIECE = "(?:scene|clip|split|part|seg|segment|shot|chunk|trim)"
# "dQw4w9WgXcQ", "v_dQw4w9WgXcQ", "ytb_dQw4w9WgXcQ", with what tools that cut or fetch videos write after it:
# "_10_25.5" (the decimals are one more tail), "-Scene-001", "-720p", ".f137".
_BARE_ID = re.compile(rf"(?:v_|ytb_|yt_)?([\w-]{{11}})(?:[_.-](?:\d+p?|f\d+|(?i:{_PIECE})\d*))*", re.ASCII)
# "split_1", "Scene-001", "part2", and what folders of a video's frames are called
_ONLY_A_PIECE = re.compile(rf"(?i:{_PIECE}|frames?|images?|imgs?)(?:[_.-]?\d+)*", re.ASCII)
_TIMED_CLIP = re.compile(r"(.+)_(\d+(?:\.\d+)?)_(\d+(?:\.\d+)?)", re.ASCII | re.DOTALL)  # "RPY8D_0.0_15.2"
_WORDS = re.compile(r"(?:[A-Z]?[a-z]{2,}|[A-Z]{2,}|\d+|[_-])+", re.ASCII)  # "TrainVideos", "VideoClips1"
_ID_IN_BRACKETS = re.compile(r"\[([\w-]{11})\]$", re.ASCII)  # as yt-dlp names its files


@dataclass(frozen=True, slots=True)
class Split:
    """Rows and videos of both parts."""

    num_rows: tuple[int, int]
    num_videos: tuple[int, int]


def split_by_video(source: Path, first: Path, second: Path, *, second_share: float, seed: int = 0) -> Split:
    """Write the rows to two files that have no video in common; `extra_info.split` becomes the files' names.

    A clip counts as its whole video, and videos or images of one row as one; texts alone are known by their question.
    They are drawn by `seed` and go to `second` until it has its share of the rows, which it may exceed by the last
    one's, or all but one. The same rows give the same parts, whatever their order.

    Raises:
        UsageError: a file cannot be read or written, a row names no video, one part would be empty, or both parts are
            one file.
    """
    if first.resolve() == second.resolve():
        raise UsageError(f"both parts would be written to {first}; give two files")
    rows = [_content_names(source, number, info) for number, info in enumerate(read_column(source, "extra_info"))]
    identities = _identities({name for names in rows for name in names if not name.startswith(_TEXT)})
    groups = _linked([set[str]().union(*(identities.get(name, {name}) for name in names)) for names in rows])
    # By what they are about, and not by their place in the file.
    groups.sort(key=lambda numbers: sorted({name for n in numbers for name in rows[n]}))
    random.Random(seed).shuffle(groups)
    if len(groups) < 2 or not 0 < second_share < 1:
        raise UsageError(
            f"{source}: {len(groups)} videos with {len(rows)} rows cannot be split with a share of {second_share:g}"
        )
    in_second: set[int] = set()
    for numbers in groups[:-1]:
        if len(in_second) >= second_share * len(rows):
            break
        in_second.update(numbers)
    in_first = {*range(len(rows))} - in_second
    table = read_table(source)
    for path, chosen in ((first, in_first), (second, in_second)):
        write_table(_with_split(table.take(sorted(chosen)), path.stem), path)
    videos = Counter(numbers[0] in in_second for numbers in groups if not rows[numbers[0]][0].startswith(_TEXT))
    return Split((len(in_first), len(in_second)), (videos[False], videos[True]))


def _content_names(source: Path, number: int, extra_info: Any) -> tuple[str, ...]:
    """The files of the videos or images that a row is about; of a text alone its question, behind a mark.

    Raises:
        UsageError: the row names no video.
    """
    if files := _files_of(extra_info):
        return files
    if not isinstance(extra_info, Mapping) or extra_info.get("visuals") != "none":
        raise UsageError(f"{source}: row {number} names no video; `vvt data validate` finds bad rows")
    return (f"{_TEXT}{extra_info.get('question')}",)


def _files_of(extra_info: Any) -> tuple[str, ...]:
    """The videos or images that a row is about; of a clip the file."""
    media = all_media_of(extra_info) if isinstance(extra_info, Mapping) else ()
    return tuple(dict.fromkeys(read_clip(path).file for path in media))


def _with_split(table: pa.Table, name: str) -> pa.Table:
    """`extra_info.split`, where there is such a field, becomes the name."""
    place = table.schema.get_field_index("extra_info")
    if all(field.name != "split" for field in table.schema.field(place).type):
        return table
    extra_info = with_texts(table.column(place).combine_chunks(), {"split": [name] * table.num_rows})
    return table.set_column(place, "extra_info", extra_info)


# ------------------------------------------------------------------------------------------------- identity of a video


def _identities(paths: set[str]) -> dict[str, set[str]]:
    """What each video is known by. Files are read only where two of the same size are among `paths`: others cannot be
    equal."""
    identities = {path: set(_names(path)) for path in paths}
    by_size: dict[int, list[str]] = defaultdict(list)
    for path in paths:
        try:
            if os.path.isfile(path):  # a folder of frames is known by its name only
                by_size[os.path.getsize(path)].append(path)
        except (OSError, ValueError):
            continue  # not there, or no path, with a NUL in it: known by its name only
    for size, alike in by_size.items():
        for path in alike if len(alike) > 1 else ():
            identities[path].add(f"content {_digest(path, size)}")
    return identities


def _linked(identities_of_rows: Sequence[set[str]]) -> list[list[int]]:
    """Numbers of rows, grouped by video: what is linked by a chain of shared identities is one."""
    leader: dict[int | str, int | str] = {}

    def find(node: int | str) -> int | str:
        while (above := leader.setdefault(node, node)) != node:
            leader[node] = node = leader[above]  # halves the way for the next one
        return node

    for number, identities in enumerate(identities_of_rows):
        for identity in identities:
            leader[find(identity)] = find(number)
    groups: dict[int | str, list[int]] = defaultdict(list)
    for number in range(len(identities_of_rows)):
        groups[find(number)].append(number)
    return list(groups.values())


def _names(path: str) -> Iterator[str]:
    """The names that a path is known by, and the YouTube id in it."""
    whole, folder = video_name(path), Path(path).parent.name
    names = [whole]
    if (clip := _TIMED_CLIP.fullmatch(whole)) is not None:
        _, start, end = clip.groups()
        if "." in start + end and float(start) < float(end):  # whole numbers count frames, parts, days as well
            names.append(clip[1])
    for name in names:
        yield f"name {folder}/{name}" if folder and _ONLY_A_PIECE.fullmatch(name) else f"name {name}"
    if (video_id := youtube_id(path)) is not None:
        yield f"youtube {video_id}"


def video_name(path: str) -> str:
    """The file's name without folder and the suffix of a video, if it has one."""
    file = Path(path)
    return file.stem if file.suffix.lower() in VIDEO_SUFFIXES else file.name


def youtube_id(path: str) -> str | None:
    """The YouTube id that a file is named after, as data sets write it; None if there is none.

    Eleven characters could be any word; an id is taken for one if it has both capital and small letters, as 99 of 100
    have. The others are still known by their file's name. Where that names only a piece of a video, the folder's name
    is asked. Folders are often called "TrainVideos", and files "SampleVideo_clip_3": what reads as words is no id
    there, though 6 of 100 ids do.
    """
    name = video_name(path)
    is_piece = _ONLY_A_PIECE.fullmatch(name) is not None
    if is_piece:
        name = Path(path).parent.name
    match = _BARE_ID.fullmatch(name) or _ID_IN_BRACKETS.search(name)
    if match is None:
        return None
    names_a_piece = is_piece or re.search("[a-zA-Z]", name[match.end(1) :]) is not None
    if names_a_piece and _WORDS.fullmatch(match[1]):
        return None
    return match[1] if re.search("[a-z]", match[1]) and re.search("[A-Z]", match[1]) else None


def _digest(path: str, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        digest.update(file.read(_EDGE_BYTES))
        file.seek(max(0, size - _EDGE_BYTES))
        digest.update(file.read(_EDGE_BYTES))
    return f"{size} {digest.hexdigest()}"
