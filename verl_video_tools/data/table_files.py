"""Tables as records: a CSV, JSON, parquet or Arrow file, or the folder of a Hugging Face data set.

Known are a folder of `save_to_disk` (`data-*.arrow`, one folder per split for several), a repository's files
(`data/train-00000-of-00002.parquet`, `train.jsonl`, `train/part.csv`), and `metadata.jsonl`, `.csv` or `.parquet`
beside the videos (`videofolder`). Read from the documentation of `datasets`, huggingface.co/docs/datasets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.formats.entries import ReadEntry, read_entries
from verl_video_tools.data.formats.fields import split_name
from verl_video_tools.data.parquet import ROWS_PER_BATCH

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow")
_NUM_SURVEYED = 200
"""Records that are read before anything is written: they name the columns."""
_WITHOUT_ROWS = ("dataset_info", "dataset_infos", "dataset_dict", "state")
"""Files of `datasets` that are about the data set."""
_SHARD = re.compile(r"[-_]\d{5}(?:-of-\d{5})?(?:-[0-9a-f]{16})?$")


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
        files, split_of_files = _files_of_split(path, split)
        folders = tuple(dict.fromkeys((path, files[0].parent)))
    elif path.suffix.lower() in SUFFIXES:
        files, split_of_files, folders = (path,), split_name(path, "train"), (path.parent,)
    else:
        raise UsageError(f"cannot read a table from {path}: expected a folder or a file of {', '.join(SUFFIXES)}")
    first = tuple(islice(chain.from_iterable(_records(file, None) for file in files), _NUM_SURVEYED))
    names = dict.fromkeys(name for record in first if isinstance(record, dict) for name in record)
    if not names:
        raise UsageError(f"{path} has no rows" + (f"; the first row: {first[0]}" if first else ""))
    return TableFiles(path, files, folders, split or split_of_files, tuple(names), first)


def _files_of_split(folder: Path, split: str | None) -> tuple[tuple[Path, ...], str]:
    """The files of a split, in order, and its name; None: the only one that there is.

    Raises:
        UsageError: there are no such files, several splits and none is chosen, or one's files are several tables.
    """
    paths = sorted(path for path in folder.rglob("*") if _holds_rows(path.relative_to(folder)) and path.is_file())
    metadata = [path for path in paths if path.stem == "metadata"]
    splits: dict[str, list[Path]] = defaultdict(list)
    for path in metadata or paths:
        parent = path.relative_to(folder).parent
        splits[split_name(Path(_SHARD.sub("", path.stem)), split_name(parent, "train"))].append(path)
    if not splits:
        raise UsageError(f"{folder} holds no table: no file of {', '.join(SUFFIXES)}")
    chosen = next(iter(splits)) if split is None and len(splits) == 1 else split_name(Path(split or ""), split or "")
    if chosen not in splits:
        chosen = "choose one" if split is None else f"there is no {split!r}"
        raise UsageError(f"{folder} has the splits {', '.join(sorted(splits))}: {chosen}; name it with --split")
    files = splits[chosen]
    if len({(path.parent, path.suffix, _SHARD.sub("", path.stem)) for path in files}) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in files[:4])
        raise UsageError(f"{folder} holds several tables ({names}); name one of them")
    return tuple(files), split or chosen


def _holds_rows(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix.lower() in SUFFIXES and path.stem not in _WITHOUT_ROWS


def _records(path: Path, columns: Sequence[str] | None) -> Iterator[ReadEntry]:
    return _of_arrow(path, columns) if path.suffix.lower() in (".parquet", ".arrow") else read_entries(path)


def _of_arrow(path: Path, columns: Sequence[str] | None) -> Iterator[ReadEntry]:
    """Rows of a parquet file, or of an Arrow stream as `datasets` saves it (`save_to_disk`). Of columns of media
    (`bytes`, `path`) the paths alone: bytes may be gigabytes."""
    try:
        if path.suffix.lower() == ".arrow":
            with pa.memory_map(str(path)) as source:
                for batch in pa.ipc.open_stream(source):
                    paths = [
                        pa.StructArray.from_arrays([column.field("path")], ["path"])
                        if _is_media(column.type)
                        else column
                        for column in batch.columns
                    ]
                    yield from pa.RecordBatch.from_arrays(paths, batch.schema.names).to_pylist()
            return
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            names = [name for name in schema.names if columns is None or name in columns]
            columns_to_read = [f"{name}.path" if _is_media(schema.field(name).type) else name for name in names]
            for batch in file.iter_batches(ROWS_PER_BATCH, columns=columns_to_read):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot read a table from {path}: {error}") from error


def _is_media(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}
