"""Parquet files of rows that a user names: read a few rows at a time, written as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.files import whole_file

ROWS_PER_BATCH = 256
"""Rows held in memory at once. Rows without images take a few kilobytes each."""
_ADVICE = "name a file in a folder that can be written"


@contextmanager
def _reading(path: str | Path, content: str = "rows") -> Iterator[None]:
    """For a block that reads a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = str(error)
        if isinstance(error, FileNotFoundError):
            reason = "no such file"
        elif Path(path).is_dir():
            reason = "it is a folder; name a parquet file"
        elif isinstance(error, pa.ArrowInvalid):
            reason = f"not a parquet file, or a damaged one ({error})"
        raise UsageError(f"cannot read {content} from {path}: {reason}") from error


def read_table(path: str | Path) -> pa.Table:
    """The rows of a file. Raises UsageError if it cannot be read."""
    with _reading(path):
        return pq.read_table(path)


def read_schema(path: str | Path) -> pa.Schema:
    """The columns of a file. Raises UsageError if it cannot be read."""
    with _reading(path):
        return pq.read_schema(path)


def count_rows(path: str | Path) -> int:
    """Number of rows of a file. Raises UsageError if it cannot be read."""
    with _reading(path):
        return int(pq.read_metadata(path).num_rows)


def row_batches(
    path: str | Path,
    columns: Sequence[str] | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    content: str = "rows",
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in its order, a few at a time.

    Args:
        columns: only these, as far as the file has them; None: all.
        content: what the file is read for, for the message.

    Raises:
        UsageError: it cannot be read.
    """
    with _reading(path, content), pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        columns_to_read = None if columns is None else [name for name in columns if name in names]
        yield from file.iter_batches(rows_per_batch, columns=columns_to_read)


def read_column(path: str | Path, name: str) -> Iterator[Any]:
    """What each row has in a column.

    Raises:
        UsageError: the file cannot be read, or has no such column.
    """
    if name not in read_schema(path).names:
        raise UsageError(f"{path}: no column {name}, so these are not rows of ours")
    for batch in row_batches(path, (name,)):
        yield from batch.column(0).to_pylist()


def with_texts(structs: pa.StructArray, texts: Mapping[str, Sequence[str]]) -> pa.StructArray:
    """A column of named entries with these added or replaced, a text for each row; other entries keep value and type.

    Args:
        texts: by name of the entry.
    """
    fields = {field.name: field for field in structs.type}
    arrays = dict(zip(fields, structs.flatten(), strict=True))
    for name, of_rows in texts.items():
        arrays[name] = pa.array(of_rows, pa.string())
        fields[name] = fields.get(name, pa.field(name, pa.string())).with_type(pa.string())
    return pa.StructArray.from_arrays(list(arrays.values()), fields=list(fields.values()))


@contextmanager
def row_writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """A writer whose file appears, or replaces an older one, only if the block ends without an exception.

    Raises:
        UsageError: it cannot be written.
    """
    with writing(path, _ADVICE):
        if path.is_dir():  # reported before the work; and "." has no name to write beside
            raise UsageError(f"cannot write {path}: it is a folder; name a file")
        path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with writing(path, _ADVICE):
            partial = stack.enter_context(whole_file(path))
            writer = pq.ParquetWriter(partial, schema)
        with writer:
            yield writer
        with writing(path, _ADVICE):  # what the block raises is not the file's fault; that it cannot be replaced is
            stack.close()


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a file as a whole or not at all; folders on the way to it are made.

    Raises:
        UsageError: it cannot be written.
    """
    with row_writer(Path(path), table.schema) as writer:
        writer.write_table(table)
