"""Rows (docs/rows.md) of the questions that are left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.data.haystack.pipeline import Candidate
from verl_video_tools.data.parquet import write_table

DATA_SOURCE = "haystack"


def to_row(item: Candidate, index: int, split: str) -> dict[str, Any]:
    """An open question for LongVT, with the annotated segment that its reward compares crops with."""
    return {
        "data_source": DATA_SOURCE,
        "agent_name": "longvt",
        "prompt": [{"role": "user", "content": item.question}],
        "ability": "video_qa",
        "reward_model": {"style": "rule", "ground_truth": item.answer},
        "extra_info": {
            "question": item.question,
            "video_path": os.path.abspath(item.video),  # a run may start in another folder; links stay
            "question_type": "open",
            "video_segment": [item.start_seconds, item.end_seconds],
            "index": index,
            "split": split,
        },
    }


def write_rows(items: Sequence[Candidate], path: Path, split: str = "train") -> None:
    """One row per question, in their order."""
    write_table(pa.Table.from_pylist([to_row(item, index, split) for index, item in enumerate(items)]), path)
