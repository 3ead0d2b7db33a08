"""Parquet files of rows that a user names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.errors import UsageError


def read_table(path: str | Path) -> pa.Table:
    """The rows of a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"cannot read rows from {path}: {error}") from error
