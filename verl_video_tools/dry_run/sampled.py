"""Some rows of a file, spread evenly over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.parquet import count_rows, row_batches


@dataclass(frozen=True)
class SampledRows:
    """Rows of one or several files.

    Attributes:
        files: paths as the run is given them.
        sizes: rows of each file.
        rows: some of them, with their numbers, which go on from file to file.
        agent_names: of all rows, as far as they name one.
    """

    files: tuple[str, ...]
    sizes: tuple[int, ...]
    rows: tuple[tuple[int, dict[str, Any]], ...]
    agent_names: frozenset[str]

    @property
    def num_rows(self) -> int:
        """Of all files."""
        return sum(self.sizes)

    def label(self, number: int) -> str:
        """The row's place, counted in its own file."""
        for file, size in zip(self.files, self.sizes, strict=True):
            if number < size:
                return f"row {number}" if len(self.files) == 1 else f"{file} row {number}"
            number -= size
        raise IndexError(number)


def files_of(option: Any) -> tuple[str, ...]:
    """The files of `data.train_files` or `data.val_files`: one path, a list, or none."""
    if not option:
        return ()
    return (option,) if isinstance(option, str) else tuple(option)


def sample_rows(files: Sequence[str], num_wanted: int, columns: Sequence[str] | None = None) -> SampledRows:
    """Read rows from first to last, evenly spaced.

    Args:
        num_wanted: rows to keep at most, at least 1.
        columns: those that are read; by default all.

    Raises:
        UsageError: a file cannot be read.
        RowError: there are no rows.
    """
    sizes = tuple(map(count_rows, files))
    total = sum(sizes)
    if not total:
        raise RowError(f"{', '.join(files)}: no rows")
    wanted = {index * total // num_wanted for index in range(num_wanted)} if num_wanted < total else set(range(total))
    rows: list[tuple[int, dict[str, Any]]] = []
    names: set[str] = set()
    number = 0
    for file in files:
        for batch in row_batches(file, columns):
            if "agent_name" in batch.schema.names:
                names |= {name for name in batch.column("agent_name").unique().to_pylist() if isinstance(name, str)}
            here = [index for index in range(batch.num_rows) if number + index in wanted]
            chosen = batch.take(pa.array(here, pa.int64())).to_pylist()
            rows += [(number + index, row) for index, row in zip(here, chosen, strict=True)]
            number += batch.num_rows
    return SampledRows(tuple(files), sizes, tuple(rows), frozenset(names))
