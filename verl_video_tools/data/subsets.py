"""Two parts of a file of rows without a common video.

Rows are about the same video though its files have other names or places. A video is known by its file's name without
folder, suffix and the seconds of a clip, by the YouTube id in that name, and, where the file is there, by its content:
size, first and last mebibyte. Where the name says only which piece of a video it is, such as "split_1", the folder's
name counts.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.sample import all_media_of, read_clip
from verl_video_tools.data.formats.entries import VIDEO_SUFFIXES
from verl_video_tools.data.parquet import read_column, read_schema, row_batches, row_writer, with_texts

logger = logging.getLogger(__name__)

Identity = tuple[Literal["text", "name", "youtube", "content"], str]
"""What a video, or a question without one, is known by. Two that share an identity are one."""

_TEXT = "\0text alone\0"
"""Before the question of a row without a video, in the place of a path; no path begins so."""
_EDGE_BYTES = 1 << 20
_PIECE = "(?:scene|clip|split|part|seg|segment|shot|chunk|trim)"
# "dQw4w9WgXcQ", "v_dQw4w9WgXcQ", "ytb_dQw4w9WgXcQ", with what tools that cut or fetch videos write after it:
# "_10_25.5" (the decimals are one more tail), "-Scene-001", "-720p", ".f137".
_BARE_ID = re.compile(rf"(?:v_|ytb_|yt_)?([\w-]{{11}})(?:[_.-](?:\d+p?|f\d+|(?i:{_PIECE})\d*))*", re.ASCII)
_ONLY_A_PIECE = re.compile(rf"(?i:{_PIECE})(?:[_.-]?\d+)*", re.ASCII)  # "split_1", "Scene-001", "part2"
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

    A clip counts as its whole video, and videos or images of one row as one; texts alone are told apart by their
    question. They are drawn by `seed` and go to `second` until it has its share of the rows, which it may exceed by the
    last one's, or all but one. The same rows give the same parts, whatever their order.

    Raises:
        UsageError: a file cannot be read or written, a row names no video, one part would be empty, or both parts are
            one file.
    """
    if first.resolve() == second.resolve():
        raise UsageError(f"both parts would be written to {first}; give two files")
    rows = list(files_of_rows(source))
    known_by = _identities(file for files in rows for file in files)
    videos = [
        (sorted({file for number in numbers for file in rows[number]}), numbers)
        for numbers in _same_video([frozenset().union(*map(known_by.__getitem__, files)) for files in rows])
    ]
    videos.sort()
    random.Random(seed).shuffle(videos)
    if len(videos) < 2 or not 0 < second_share < 1:
        raise UsageError(
            f"{source}: {len(videos)} videos with {len(rows)} rows cannot be split with a share of {second_share:g}"
        )
    chosen: list[int] = []
    num_chosen = 0
    for files, numbers in videos[:-1]:
        if len(chosen) >= second_share * len(rows):
            break
        chosen += numbers
        num_chosen += not files[0].startswith(_TEXT)
    _write_parts(source, {first: set(range(len(rows))).difference(chosen), second: set(chosen)})
    num_videos = sum(not files[0].startswith(_TEXT) for files, _ in videos)
    return Split((len(rows) - len(chosen), len(chosen)), (num_videos - num_chosen, num_chosen))


def files_of_rows(source: Path) -> Iterator[tuple[str, ...]]:
    """The videos or images that each row is about, at least one, in its order; of a clip the file; of a text alone what
    tells it apart.

    Raises:
        UsageError: the file cannot be read, or a row has none.
    """
    for number, extra_info in enumerate(read_column(source, "extra_info")):
        files = _files_of(extra_info)
        if not files:
            raise UsageError(f"{source}: row {number} has no extra_info.video_path; `vvt data validate` finds bad rows")
        yield files


def _files_of(extra_info: Any) -> tuple[str, ...]:
    if not isinstance(extra_info, Mapping):
        return ()
    media = all_media_of(extra_info)
    if not media and extra_info.get("visuals") == "none":
        return (f"{_TEXT}{extra_info.get('question')}",)
    return tuple(dict.fromkeys(read_clip(path).file for path in media))


def _write_parts(source: Path, parts: Mapping[Path, set[int]]) -> None:
    """Each part gets the rows of these numbers. `extra_info.split`, where there is such a field, becomes its name."""
    with ExitStack() as stack:
        schema = read_schema(source)
        writers = {part: stack.enter_context(row_writer(part, schema)) for part in parts}
        first = 0
        for batch in row_batches(source):
            for part, numbers in parts.items():
                mask = [number in numbers for number in range(first, first + len(batch))]
                rows = batch.filter(pa.array(mask, pa.bool_()))
                writers[part].write_batch(_with_split(rows, part.stem))
            first += len(batch)


def _with_split(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    position = batch.schema.get_field_index("extra_info")
    extra_info = batch.column(position)
    if all(field.name != "split" or field.type != pa.string() for field in extra_info.type):
        return batch
    renamed = with_texts(extra_info, {"split": [name] * len(batch)})
    return batch.set_column(position, batch.schema.field(position), renamed)


# ------------------------------------------------------------------------------------------------- identity of a video


def _identities(paths: Iterable[str]) -> dict[str, set[Identity]]:
    """What each video, or text alone, is known by. Files are read only where two of the same size are among `paths`:
    others cannot be equal."""
    found: dict[str, set[Identity]] = {}
    for path in dict.fromkeys(paths):
        if path.startswith(_TEXT):
            found[path] = {("text", path)}
            continue
        found[path] = {("name", name) for name in _names(path)}
        if (found_id := youtube_id(path)) is not None:
            found[path].add(("youtube", found_id))
    for path, digest in _digests(path for path in found if not path.startswith(_TEXT)).items():
        found[path].add(("content", digest))
    return found


def _same_video(known_by: Sequence[Iterable[Identity]]) -> list[list[int]]:
    """Numbers of rows, grouped by video: what is linked by a chain of shared identities is one."""
    leader: dict[int | Identity, int | Identity] = {}

    def find(node: int | Identity) -> int | Identity:
        while (above := leader.setdefault(node, node)) != node:
            leader[node] = node = leader[above]  # halves the way for the next one
        return node

    for number, identities in enumerate(known_by):
        for identity in identities:
            leader[find(identity)] = find(number)
    groups: dict[int | Identity, list[int]] = defaultdict(list)
    for number in range(len(known_by)):
        groups[find(number)].append(number)
    return list(groups.values())


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
