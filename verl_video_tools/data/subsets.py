"""Parts of a file of rows: split by video, and without the videos of benchmarks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.core.clips import read_clip
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.sample import all_media_of
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark, read_rows
from verl_video_tools.data.parquet import read_column, read_schema, row_batches, row_writer, with_texts
from verl_video_tools.data.video_identity import SIGNS, Identity, Sign, identities, same_video

_TEXT = "\0text alone\0"
"""Before the question of a row without a video, in the place of a path; no path begins so."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows and videos of both parts."""

    num_rows: tuple[int, int]
    num_videos: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Contamination:
    """A row whose video occurs in a benchmark.

    Attributes:
        number: place of the row in its file, from 0.
        benchmark: its name, `data_source` of its rows, or the name of their file.
        identity: what the videos share.
    """

    number: int
    benchmark: str
    identity: Identity


def split_by_video(
    source: Path, first: Path, second: Path, *, second_share: float, seed: int = 0, signs: Sequence[Sign] = SIGNS
) -> Split:
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
    counts = Counter(files[0] for files in rows)
    known_by = _known_by((file for files in rows for file in files), signs)
    videos = [sorted(video) for video in same_video(known_by, rows)]
    order = sorted(videos)
    random.Random(seed).shuffle(order)
    if len(order) < 2 or not 0 < second_share < 1:
        raise UsageError(
            f"{source}: {len(order)} videos with {counts.total()} rows cannot be split with a share of {second_share:g}"
        )
    wanted = second_share * counts.total()
    chosen: set[str] = set()
    num_chosen = num_rows = 0
    for video in order[:-1]:
        if num_rows >= wanted:
            break
        chosen.update(video)
        num_chosen += not _is_text(video[0])
        num_rows += sum(counts[path] for path in video)
    _write_parts(source, {first: chosen.isdisjoint, second: chosen.issuperset})
    num_videos = sum(not _is_text(video[0]) for video in order)
    return Split((counts.total() - num_rows, num_rows), (num_videos - num_chosen, num_chosen))


def decontaminate(
    source: Path,
    out: Path,
    benchmarks: Sequence[str | Path],
    signs: Sequence[Sign] = SIGNS,
    note: Callable[[str], None] = lambda text: None,
) -> list[Contamination]:
    """Write the rows whose videos occur in none of the benchmarks, and report the others. A clip counts as its video.

    Args:
        benchmarks: each a file of rows; a .txt file with the path, name or YouTube URL of a video per line; or
            `NAME=FILE`, the published annotations of one of `BENCHMARK_NAMES`, for which no videos are needed.
        note: called for entries of annotations that name no video.

    Raises:
        UsageError: a file cannot be read or written, a row has no video, or there is no such benchmark.
    """
    rows = list(files_of_rows(source))
    files = dict.fromkeys(file for row in rows for file in row)
    owners = _owners(benchmarks, note)
    known_by = _known_by([*files, *owners], signs)
    benchmark_of: dict[Identity, str] = {}
    for path, benchmark in owners.items():
        for identity in known_by[path]:
            benchmark_of.setdefault(identity, benchmark)
    found: dict[str, tuple[str, Identity]] = {}
    for path in files:
        if shared := known_by[path] & benchmark_of.keys():
            surest = max(shared, key=lambda identity: (SIGNS.index(identity[0]), len(identity[1]), identity[1]))
            found[path] = (benchmark_of[surest], surest)
    _write_parts(source, {out: found.keys().isdisjoint}, rename=False)
    shared_files = ((number, next((file for file in row if file in found), None)) for number, row in enumerate(rows))
    return [Contamination(number, *found[file]) for number, file in shared_files if file is not None]


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


def _is_text(path: str) -> bool:
    return path.startswith(_TEXT)


def _known_by(paths: Iterable[str], signs: Sequence[Sign]) -> dict[str, frozenset[Identity]]:
    """As `identities`; a text alone is like no other."""
    files = dict.fromkeys(paths)
    texts = dict.fromkeys(filter(_is_text, files), frozenset[Identity]())
    return identities((path for path in files if path not in texts), signs) | texts


def _owners(benchmarks: Sequence[str | Path], note: Callable[[str], None]) -> dict[str, str]:
    """Each benchmark's videos with its name."""
    owners: dict[str, str] = {}
    for benchmark in benchmarks:
        name, mark, annotations = str(benchmark).partition("=")
        file = Path(benchmark)
        if mark and not file.exists():
            owners.update((video, name) for video in _annotated_videos(name, Path(annotations), note))
        elif file.suffix == ".txt":
            owners.update((video, file.stem) for video in _read_names(file))
        else:
            has_name = "data_source" in read_schema(file).names
            names = read_column(file, "data_source") if has_name else None
            for paths in files_of_rows(file):
                data_source = next(names) if names is not None else None
                for path in paths:
                    owners.setdefault(path, data_source or file.stem)
    return owners


def _annotated_videos(name: str, annotations: Path, note: Callable[[str], None]) -> Iterator[str]:
    """The videos that published annotations are about, as these name them."""
    num_named, unread = 0, list[str]()
    files = BenchmarkFiles(annotations=annotations, videos=None, hidden_truths=True)
    for number, row in read_rows(get_benchmark(name), files):
        if isinstance(row, RowError):
            unread.append(f"row {number}: {row}")
        else:
            num_named += 1
            yield from _files_of(row["extra_info"])
    if not num_named:
        first = f"; {unread[0]}" if unread else ""
        raise UsageError(f"{annotations} names no video in the format of {name}{first}")
    if unread:
        note(
            f"{annotations}: {len(unread)} entries cannot be read, and videos that only they name are not looked for; "
            f"the first is {unread[0]}"
        )


def _read_names(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read names of videos from {file}: {error}") from error
    return [read_clip(line.strip()).file for line in lines if line.strip()]


def _write_parts(source: Path, parts: Mapping[Path, Callable[[Sequence[str]], bool]], rename: bool = True) -> None:
    """Each part gets the rows whose files it wants. Rows keep their columns; with `rename`, `extra_info.split`, where
    there is such a field, becomes the part's name."""
    with ExitStack() as stack:
        schema = read_schema(source)
        writers = {part: stack.enter_context(row_writer(part, schema)) for part in parts}
        for batch in row_batches(source):
            files = [_files_of(extra_info) for extra_info in batch.column("extra_info").to_pylist()]
            for part, wants in parts.items():
                rows = batch.filter(pa.array([wants(each) for each in files], pa.bool_()))
                writers[part].write_batch(_with_split(rows, part.stem) if rename else rows)


def _with_split(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    position = batch.schema.get_field_index("extra_info")
    extra_info = batch.column(position)
    if all(field.name != "split" or field.type != pa.string() for field in extra_info.type):
        return batch
    renamed = with_texts(extra_info, {"split": [name] * len(batch)})
    return batch.set_column(position, batch.schema.field(position), renamed)
