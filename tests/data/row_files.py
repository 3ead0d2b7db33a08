"""Files of rows for tests of the commands that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

QUESTION = "What does the woman carry?\nA. a lamp\nB. a chair"


def make_row(
    video_path: str | Path, truth: str = "B", agent_name: str = "framethinker", **extra: Any
) -> dict[str, Any]:
    """A multiple-choice row about a video; `extra` goes into `extra_info` on top of the usual fields."""
    question = extra.get("question", QUESTION)
    return {
        "data_source": "house",
        "agent_name": agent_name,
        "prompt": [{"role": "user", "content": question}],
        "ability": "video_qa",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {
            "question": question,
            "question_type": "mc",
            "options": ["a lamp", "a chair"],
            "video_path": str(video_path),
            "split": "all",
            **extra,
        },
    }


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()
