"""Recorded rollouts as a folder that `datasets.load_dataset` reads: parquet files with pictures, and a card."""

from __future__ import annotations

import re
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.data.hf_rollouts import COLUMNS, row_of, schema
from verl_video_tools.records.records import read_again, read_records, records_folder, run_folder, step_files, step_of
from verl_video_tools.records.sample import last_entries, read_entries
from verl_video_tools.records.thumbnails import Thumbnails, decode_thumbnails
from verl_video_tools.records.view_data import video_path

_ROWS_PER_GROUP = 32
"""Rollouts in memory at once, with their pictures, and in a row group: the Hub's viewer reads whole row groups."""
_BYTES_PER_FILE = 300_000_000
_ADVICE = "name a folder that can be made"


@dataclass
class HFReport:
    """What was written."""

    num_rollouts: dict[str, int] = field(default_factory=dict)
    """By split."""
    num_images: int = 0
    methods: Counter[str] = field(default_factory=Counter)
    notes: dict[str, str] = field(default_factory=dict)
    """Video path to why it has no pictures."""


def export_hf(
    records: Path,
    out: Path,
    *,
    images: bool = True,
    side_pixels: int = 256,
    exported: Callable[[int], None] = lambda count: None,
) -> HFReport:
    """Write recorded rollouts as a dataset: split `train` of training rollouts, `validation` of held-out ones.

    The folder appears when it is complete. Pictures are decoded again from the rows' videos, at most 16 of a look.

    Args:
        records: folder of a run or of its records, or one file of records.
        out: folder to make; it may exist if it is empty.
        images: with pictures of the frames that were shown.
        side_pixels: longer side of a picture at most.
        exported: called with the number of rollouts written so far.

    Raises:
        UsageError: there is no rollout, a line cannot be read, or `out` holds files or cannot be written.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UsageError(f"{out} exists and is not an empty folder; name another one, or remove it first")
    splits = {name: files for name, files in _splits(records).items() if files}
    if not splits:
        raise UsageError(f"{records}: no recorded rollout; give a run's folder, or its folder of step_*.jsonl")
    partial = out.absolute().with_name(f".{out.absolute().name}.{uuid.uuid4().hex}.partial")
    report = HFReport()
    side = side_pixels if images else None
    try:
        with writing(out, _ADVICE):
            (partial / "data").mkdir(parents=True)
        for name, files in splits.items():
            _write_split(partial / "data", name, files, side, report, exported)
        if not sum(report.num_rollouts.values()):
            raise UsageError(f"{records}: its files hold no whole line, so there is no recorded rollout yet")
        with writing(out, _ADVICE):
            title = run_folder(records).resolve().name
            (partial / "README.md").write_text(card(title, report), encoding="utf-8")
            partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return report


def card(title: str, report: HFReport) -> str:
    """The dataset's card, with the files of each split for `datasets`."""
    splits = [name for name, count in report.num_rollouts.items() if count]
    counts = ", ".join(f"{report.num_rollouts[name]} in `{name}`" for name in splits)
    methods = ", ".join(f"{_code(name)} ({count})" for name, count in sorted(report.methods.items()))
    return "\n".join(
        [
            "---",
            "configs:",
            "- config_name: default",
            "  data_files:",
            *(f"  - split: {name}\n    path: data/{name}-*.parquet" for name in splits),
            "tags: [video, tool-use, reinforcement-learning]",
            "---",
            f"# Rollouts of {_code(title)}",
            "",
            f"Recorded rollouts of a video model with tools: {counts}. Methods: {methods}. "
            f"Images: {report.num_images}.",
            "",
            "Written by `vvt data export-hf` of verl_video_tools. `video` and `record` hold paths and rows of the "
            "machine that the run took place on, and `images` show its videos.",
            "",
            "| column | content |",
            "|---|---|",
            *(f"| `{name}` | {meaning} |" for name, (_, meaning) in COLUMNS.items()),
            "",
        ]
    )


def _code(name: str) -> str:
    """A name that a record or a user chose, as code in Markdown."""
    return f"`{re.sub(r'[^ -_a-~]', '?', name)[:100]}`"


def _splits(records: Path) -> dict[str, list[Path]]:
    if records.is_file():
        return {"validation" if records.name.startswith("val_step_") else "train": [records]}
    folder = records_folder(records)
    return {"train": step_files(folder), "validation": step_files(folder, validation=True)}


def _write_split(
    folder: Path,
    split: str,
    files: list[Path],
    side_pixels: int | None,
    report: HFReport,
    exported: Callable[[int], None],
) -> None:
    lines = (line for file in files for line in _lines(file))
    report.num_rollouts[split] = 0
    number = 0
    batch = next(batches := _batches(lines), None)
    while batch is not None:
        path = folder / f"{split}-{number:05d}.parquet"
        with writing(path, _ADVICE), pq.ParquetWriter(path, schema()) as writer:
            is_full = False
            while batch is not None and not is_full:
                writer.write_table(_table(batch, side_pixels, report))
                report.num_rollouts[split] += len(batch)
                exported(sum(report.num_rollouts.values()))
                is_full = path.stat().st_size >= _BYTES_PER_FILE
                batch = next(batches, None)
        number += 1


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """A run writes a file once for each step; to others a rollout that failed may have been appended again."""
    if step_of(file) >= 0:
        return read_records(file)
    return (read_again(entry.place) for entry in last_entries(read_entries(file, lambda count: None)))


def _batches(lines: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(islice(lines, _ROWS_PER_GROUP)):
        yield batch


def all_thumbnails(lines: Iterable[Mapping[str, Any]], side_pixels: int) -> Thumbnails:
    """Thumbnails of what recorded lines were shown, at most 16 of a look."""
    on_videos = [(path, line["trajectory"]) for line in lines if (path := video_path(line)) is not None]
    return decode_thumbnails(on_videos, max_thumbnails=1 << 40, side_pixels=side_pixels)


def _table(lines: list[dict[str, Any]], side_pixels: int | None, report: HFReport) -> pa.Table:
    thumbnails = Thumbnails()
    if side_pixels is not None:
        thumbnails = all_thumbnails(lines, side_pixels)
    rows = [row_of(line, thumbnails) for line in lines]
    report.num_images += sum(len(row["images"]) for row in rows)
    report.methods.update(row["method"] for row in rows)
    report.notes |= thumbnails.notes
    return pa.Table.from_pylist(rows, schema=schema())
