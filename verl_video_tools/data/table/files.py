"""Tables as records: a CSV, JSON, parquet or Arrow file, or the folder of a Hugging Face data set."""

from __future__ import annotations

import csv
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.data.formats.entries import ReadEntry, csv_records, not_utf8, read_entries
from verl_video_tools.data.formats.fields import split_name
from verl_video_tools.data.parquet import ROWS_PER_BATCH
from verl_video_tools.data.table.folders import data_files

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow")
LINE = "\0line"
"""Field of a record of a text file: the number of its last line, from 1."""
NUM_SURVEYED = 200
"""Records that columns are guessed from."""
_DELIMITERS = ",;\t|"
_MISSING = "\0missing"


@dataclass(frozen=True)
class TableFiles:
    """A table as the user names it.

    Attributes:
        path: file or folder.
        files: the files that hold its rows, in order.
        folders: folders that relative paths of videos may start from, the likeliest first.
        split: as the names of the files say, or `train`.
        columns: all names, in order.
        first: the first records, as `records` gives them.
    """

    path: Path
    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    split: str
    columns: tuple[str, ...]
    first: tuple[ReadEntry, ...]

    def records(self, columns: Sequence[str] | None = None) -> Iterator[ReadEntry]:
        """Each row as a record by the names of its columns, or what is wrong with it; a few at a time.

        Args:
            columns: of a parquet file only these; None: all.

        Raises:
            UsageError: a file cannot be read.
        """
        return chain.from_iterable(_records(file, columns) for file in self.files)


def open_table(path: Path, split: str | None = None) -> TableFiles:
    """Find the files of a table and read its first records.

    Args:
        split: of a folder with several splits, the one to read.

    Raises:
        UsageError: it cannot be read, is no table, has no rows, or is a folder whose files are several tables.
    """
    if path.is_dir():
        files, found = data_files(path, split)
        folders = tuple(
            dict.fromkeys((*({files[0].parent} if files[0].stem == "metadata" else ()), path, files[0].parent))
        )
    elif path.suffix.lower() in SUFFIXES:
        files, found, folders = (path,), split_name(path, "train"), (path.parent,)
    else:
        raise UsageError(f"cannot read a table from {path}: expected a folder or a file of {', '.join(SUFFIXES)}")
    first = tuple(islice(chain.from_iterable(_records(file, None) for file in files), NUM_SURVEYED))
    names = dict.fromkeys(name for record in first if isinstance(record, dict) for name in record if name != LINE)
    if not names:
        told = f"; the first row: {first[0]}" if first else ""
        raise UsageError(f"{path} has no rows{told}")
    return TableFiles(path, files, folders, split or found, tuple(names), first)


def _records(path: Path, columns: Sequence[str] | None) -> Iterator[ReadEntry]:
    match path.suffix.lower():
        case ".csv" | ".tsv":
            return _of_csv(path)
        case ".parquet":
            return _of_parquet(path, columns)
        case ".arrow":
            return _of_arrow(path)
    return read_entries(path)


def _of_csv(path: Path) -> Iterator[ReadEntry]:
    try:
        with path.open("rb") as raw:
            if raw.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE):  # a spreadsheet's "Unicode text"
                raise UsageError(f"cannot read a table from {path}: it is UTF-16; save it as UTF-8")
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            delimiter = _delimiter(file.readline(), path)
            file.seek(0)
            header = csv.reader(file, delimiter=delimiter, strict=True)
            names = next(header, [])
            names = [name.strip() or f"column {place}" for place, name in enumerate(names, start=1)]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise UsageError(f"{path} has several columns named {twice[0]!r}; rename all but one in its first line")
            reader = csv.DictReader(
                file, fieldnames=names, delimiter=delimiter, restkey=LINE, restval=_MISSING, strict=True
            )
            for record in csv_records(reader, path, header.line_num):
                line = header.line_num + reader.line_num
                if isinstance(record, RowError):
                    yield record
                else:
                    yield _fault(record, names, f"line {line}") or {**record, LINE: line}
    except (OSError, csv.Error) as error:
        raise UsageError(f"cannot read a table from {path}: {error}") from error


def _delimiter(first_line: str, path: Path) -> str:
    """A tab for `.tsv`; else what the first line has most of."""
    return "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first_line.count)


def _fault(record: dict[Any, Any], names: Sequence[str], place: str) -> RowError | None:
    num_values = sum(record[name] != _MISSING for name in names) + len(record.get(LINE, ()))
    if num_values != len(names):
        return RowError(
            f"{place} has {num_values} values, the first line names {len(names)} columns; a value that holds the "
            f"delimiter stands in double quotes"
        )
    return not_utf8("".join(record.values()), place)


def _of_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[ReadEntry]:
    """Of columns of media (`bytes`, `path`) the paths alone: bytes may be gigabytes."""
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            names = [name for name in schema.names if columns is None or name in columns]
            wanted = [f"{name}.path" if _is_media(schema.field(name).type) else name for name in names]
            for batch in file.iter_batches(ROWS_PER_BATCH, columns=wanted):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot read a table from {path}: {error}") from error


def _of_arrow(path: Path) -> Iterator[ReadEntry]:
    """As `datasets` saves it (`save_to_disk`)."""
    try:
        with pa.memory_map(str(path)) as source:
            for batch in pa.ipc.open_stream(source):
                media = [name for name in batch.schema.names if _is_media(batch.schema.field(name).type)]
                paths = {name: batch.column(name).field("path").to_pylist() for name in media}
                others = batch.select([name for name in batch.schema.names if name not in media])
                rows = others.to_pylist() if others.num_columns else [{} for _ in range(batch.num_rows)]
                for number, row in enumerate(rows):
                    yield {**row, **{name: {"path": values[number]} for name, values in paths.items()}}
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot read a table from {path}: {error}") from error


def _is_media(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}
