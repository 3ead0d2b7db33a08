"""Rows (docs/rows.md) of the questions that are left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.data.formats.entries import benchmark_row
from verl_video_tools.data.haystack.pipeline import Candidate
from verl_video_tools.data.parquet import write_table

DATA_SOURCE = "haystack"


def to_row(item: Candidate, index: int) -> dict[str, Any]:
    """An open question for LongVT, with the annotated segment that its reward compares crops with."""
    row = benchmark_row(
        DATA_SOURCE,
        index=index,
        split="train",
        video_path=Path(os.path.abspath(item.video)),  # a run may start in another folder; links stay
        question=item.question,
        truth=item.answer,
        video_segment_seconds=(item.start_seconds, item.end_seconds),
    )
    return {**row, "agent_name": "longvt"}


def write_rows(items: Sequence[Candidate], path: Path) -> None:
    """One row per question, in their order."""
    write_table(pa.Table.from_pylist([to_row(item, index) for index, item in enumerate(items)]), path)
