"""Tables for tests, with videos that are empty files, as nothing opens them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.cli.main import run


def touch(folder: Path, *names: str) -> Path:
    """Empty files below a folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def write_csv(path: Path, records: Sequence[Mapping[str, Any]], delimiter: str = ",") -> Path:
    """One line per record; cells that are lists as JSON."""
    names = list(dict.fromkeys(name for record in records for name in record))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(names)
        for record in records:
            cells = [record.get(name) for name in names]
            writer.writerow([json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells])
    return path


def write_jsonl(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_parquet(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(records)), path)
    return path


def convert(source: Path, target: Path, *options: str) -> int:
    """The command's exit code."""
    return run(["data", "convert", str(source), str(target), "--from", "table", *options])
