"""Rows for reinforcement fine-tuning: a policy's own rollouts that deserve imitation (LongVT, paper 3.2 and 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_video_tools.data.sft import ExportReport
from verl_video_tools.errors import UsageError
from verl_video_tools.rewards.temporal import temporal_iou
from verl_video_tools.trace.records import read_records
from verl_video_tools.types import StopReason, Trajectory

TEMPLATE = "rft"


def export_rft(
    records_dir: str | Path, out_parquet: str | Path, *, min_accuracy: float = 1.0, min_iou: float = 0.3
) -> ExportReport:
    """Write the good rollouts of a recorded run as rows with turns, for `data.sft_dataset`.

    A rollout is kept if it ended with an answer, unflagged and with no turn cut; if its accuracy is at least
    `min_accuracy`; and if the last segment that it was shown overlaps the annotated one by `min_iou` (paper 3.2: a
    correct answer, and an IoU of at least 0.3). With `min_iou` 0 no segment is asked for. Rollouts of a question that
    say the same are written once.

    Args:
        records_dir: folder of `step_*.jsonl` files (docs/training.md).
        min_accuracy: of the recorded reward component `accuracy`.

    Raises:
        UsageError: the folder holds no records, or none of its rollouts is good enough.
    """
    report = ExportReport()
    rows: list[dict[str, Any]] = []
    seen: set[tuple[object, ...]] = set()
    for line in read_records(Path(records_dir)):
        fault = _fault(line, min_accuracy, min_iou)
        if fault is None:
            row = _row(line)
            key = (row["extra_info"]["video_path"], row["extra_info"]["question"], *row["turns"])
            fault = "repetition" if key in seen else None
        if fault is not None:
            report.dropped[fault] += 1
            continue
        seen.add(key)
        report.kept[TEMPLATE] += 1
        rows.append(row)
    if not rows:
        raise UsageError(f"{records_dir}: no rollout is worth keeping: {report}")
    Path(out_parquet).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), out_parquet)
    return report


def last_segment_iou(trajectory: Trajectory, video_segment: Any) -> float:
    """IoU of the last segment that was shown with the annotated one; 0.0 where either is missing."""
    results = [call.result for call in trajectory.executed_calls()]
    shown = [(result["start_time"], result["end_time"]) for result in results if "start_time" in result]
    return temporal_iou(shown[-1], video_segment) if shown and video_segment is not None else 0.0


def _fault(line: Mapping[str, Any], min_accuracy: float, min_iou: float) -> str | None:
    """Why a rollout is not kept; None if it is."""
    trajectory: Trajectory = line["trajectory"]
    if trajectory.flags:
        return "flagged"
    if trajectory.stop_reason is not StopReason.ANSWER:
        return str(trajectory.stop_reason)
    if any(turn.truncated for turn in trajectory.turns):
        return "cut turn"
    if line["reward"].get("accuracy", 0.0) < min_accuracy:
        return "wrong answer"
    if min_iou > 0.0 and last_segment_iou(trajectory, line["extra_info"].get("video_segment")) < min_iou:
        return "wrong place"
    return None


def _row(line: Mapping[str, Any]) -> dict[str, Any]:
    trajectory: Trajectory = line["trajectory"]
    # Parquet has no type for what is empty in every row.
    extra_info = {name: value for name, value in line["extra_info"].items() if value not in (None, {}, [])}
    return {
        "data_source": line["data_source"],
        "agent_name": trajectory.method,
        "prompt": [{"role": "user", "content": trajectory.question}],
        "ability": "video_qa",
        "reward_model": {"style": "rule", "ground_truth": line["ground_truth"]},
        "extra_info": extra_info,
        "turns": [turn.text for turn in trajectory.turns],
        "template": TEMPLATE,
    }
