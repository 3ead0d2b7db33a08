"""Rows of `vvt data classify` whose teacher searched, beside rows whose teacher did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.core.types import CallRecord, StopReason, Trajectory, Turn
from verl_video_tools.data.classify import export_classified


def teacher_record(row: int, answers: list[list[int]]) -> dict[str, Any]:
    calls = [CallRecord("clip_sample", {}, ok=True, retrieved_frames=answers)] if answers else []
    turns = [Turn("look", calls=calls, well_formed=True), Turn("so", answer="B", well_formed=True)]
    question = f"question {row}"
    trajectory = Trajectory("videobrain", question, turns=turns, stop_reason=StopReason.ANSWER, answer="B")
    return {
        "trajectory": trajectory,
        "reward": {"accuracy": 1.0},
        "answer_label": "correct",
        "data_source": "films",
        "ground_truth": "B",
        "extra_info": {"question": question, "video_path": "video.mp4", "index": row},
    }


def test_answers_of_searches_reach_the_rows_whichever_row_comes_first(tmp_path: Path) -> None:
    extra_info = [{"question": f"question {row}"} for row in range(2)]
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"extra_info": extra_info}), rows)
    teacher = {0: teacher_record(0, []), 1: teacher_record(1, [[7, 3]])}
    base = {row: {**record, "answer_label": "incorrect"} for row, record in teacher.items()}  # "e" and "f"
    export_classified(rows, tmp_path, base, teacher, sft_share=1.0)
    written = pq.read_table(tmp_path / "sft.parquet").to_pylist()
    assert [row["retrieved_frames"] for row in written] == [[], [[], [[7, 3]]]]
