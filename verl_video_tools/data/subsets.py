"""Parts of a file of rows: split by video, and without the videos of benchmarks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.core.clips import read_clip
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.sample import media_of
from verl_video_tools.data.formats import BenchmarkFiles, get_benchmark, read_rows
from verl_video_tools.data.parquet import read_schema, row_batches, row_writer, with_texts
from verl_video_tools.data.video_identity import SIGNS, Identity, Sign, identities, same_video


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

    Videos are drawn by `seed` and go to `second` until it has its share of the rows, which it may exceed by the last
    one's. The same rows give the same parts, whatever their order.

    Raises:
        UsageError: a file cannot be read or written, a row has no video, one part would be empty, or both parts are one
            file.
    """
    if first.resolve() == second.resolve():
        raise UsageError(f"both parts would be written to {first}; give two files")
    counts = Counter(video_paths(source))
    videos = [sorted(video) for video in same_video(identities(counts, signs))]
    order = sorted(videos)
    random.Random(seed).shuffle(order)
    wanted = second_share * counts.total()
    chosen: set[str] = set()
    num_chosen = num_rows = 0
    for video in order:
        if num_rows >= wanted:
            break
        chosen.update(video)
        num_chosen += 1
        num_rows += sum(counts[path] for path in video)
    if not 0 < num_chosen < len(order):
        raise UsageError(
            f"{source}: {len(order)} videos with {counts.total()} rows cannot be split with a share of {second_share:g}"
        )
    _write_parts(source, {first: lambda path: path not in chosen, second: lambda path: path in chosen})
    return Split((counts.total() - num_rows, num_rows), (len(order) - num_chosen, num_chosen))


def decontaminate(
    source: Path,
    out: Path,
    benchmarks: Sequence[str | Path],
    signs: Sequence[Sign] = SIGNS,
    note: Callable[[str], None] = lambda text: None,
) -> list[Contamination]:
    """Write the rows whose videos occur in none of the benchmarks, and report the others.

    Args:
        benchmarks: each a file of rows; a .txt file with the path, name or YouTube URL of a video per line; or
            `NAME=FILE`, the published annotations of one of `BENCHMARK_NAMES`, for which no videos are needed.
        note: called for entries of annotations that name no video.

    Raises:
        UsageError: a file cannot be read or written, a row has no video, or there is no such benchmark.
    """
    paths = list(video_paths(source))
    owners = _owners(benchmarks, note)
    known_by = identities([*dict.fromkeys(paths), *owners], signs)
    benchmark_of: dict[Identity, str] = {}
    for path, benchmark in owners.items():
        for identity in known_by[path]:
            benchmark_of.setdefault(identity, benchmark)
    found: dict[str, tuple[str, Identity]] = {}
    for path in set(paths):
        if shared := known_by[path] & benchmark_of.keys():
            surest = max(shared, key=lambda identity: (SIGNS.index(identity[0]), len(identity[1]), identity[1]))
            found[path] = (benchmark_of[surest], surest)
    _write_parts(source, {out: lambda path: path not in found}, rename=False)
    return [Contamination(number, *found[path]) for number, path in enumerate(paths) if path in found]


def video_paths(source: Path) -> Iterator[str]:
    """The file of `extra_info.video_path` of each row; of a row about images, the first of them.

    Raises:
        UsageError: the file cannot be read, or a row has none.
    """
    for number, extra_info in enumerate(_column(source, "extra_info")):
        path = _media_path(extra_info) if isinstance(extra_info, Mapping) else None
        if not isinstance(path, str) or not path:
            raise UsageError(f"{source}: row {number} has no extra_info.video_path; `vvt data validate` finds bad rows")
        yield read_clip(path).file


def _media_path(extra_info: Mapping[str, Any]) -> Any:
    return media_of(extra_info)


def _column(source: Path, name: str) -> Iterator[Any]:
    if name not in read_schema(source).names:
        raise UsageError(f"{source}: no column {name}, so these are not rows of ours")
    for batch in row_batches(source, (name,)):
        yield from batch.column(0).to_pylist()


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
            names = _column(file, "data_source") if has_name else None
            for path in video_paths(file):
                data_source = next(names) if names is not None else None
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
            yield read_clip(row["extra_info"]["video_path"]).file
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
    return [line.strip() for line in lines if line.strip()]


def _write_parts(source: Path, parts: Mapping[Path, Callable[[str], bool]], rename: bool = True) -> None:
    """Each part gets the rows whose video it wants. Rows keep their columns; with `rename`, `extra_info.split`, where
    there is such a field, becomes the part's name."""
    with ExitStack() as stack:
        schema = read_schema(source)
        writers = {part: stack.enter_context(row_writer(part, schema)) for part in parts}
        for batch in row_batches(source):
            paths = [_media_path(extra_info) for extra_info in batch.column("extra_info").to_pylist()]
            for part, wants in parts.items():
                rows = batch.filter(pa.array([wants(path) for path in paths], pa.bool_()))
                writers[part].write_batch(_with_split(rows, part.stem) if rename else rows)


def _with_split(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    position = batch.schema.get_field_index("extra_info")
    extra_info = batch.column(position)
    if all(field.name != "split" or field.type != pa.string() for field in extra_info.type):
        return batch
    renamed = with_texts(extra_info, {"split": [name] * len(batch)})
    return batch.set_column(position, batch.schema.field(position), renamed)
