"""Recorded rollouts that deserve imitation, as rows for fine-tuning.

A cold start takes those of an expert (`vvt data generate`, `reflect`), reinforcement fine-tuning the policy's own
(LongVT, paper 3.2 and 4.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.data.parquet import write_table
from verl_video_tools.data.sft import ExportReport
from verl_video_tools.errors import UsageError
from verl_video_tools.methods import get_method
from verl_video_tools.methods.fields import method_of_rollout
from verl_video_tools.retrieval import recorded_answers
from verl_video_tools.rewards.temporal import temporal_iou
from verl_video_tools.trace.records import read_records
from verl_video_tools.types import StopReason, Trajectory


def export_rollouts(
    records: str | Path,
    out_parquet: str | Path,
    *,
    min_accuracy: float | None = None,
    min_iou: float = 0.0,
    well_formed: bool = False,
) -> ExportReport:
    """Write the good ones among recorded rollouts as rows with turns, for `data.sft_dataset`.

    A rollout is kept if it ended with an answer, unflagged, with no turn cut and no call refused for a budget; if it
    passed its method's consistency check, where there is one; and if it is as right, as near and as well-formed as
    asked. Rollouts of a question that say the same are written once. Reflections keep their column
    `first_trained_turn`. The columns `settings` and `first_look` (JSON) say which config of its group a rollout had,
    and what it was shown: fine-tuning has to show the same. `prompt_digest` is that of a system prompt of the user's.

    Args:
        records: a file of records (`vvt data generate`), or the folder of a training run (docs/training.md).
        min_accuracy: of the recorded reward component `accuracy`; None: that of a correct answer by the method's
            defaults and what the rollout had of its own.
        min_iou: overlap of the last segment that was shown with the annotated one, which only LongVT records; 0.0 asks
            for none. LongVT's paper takes a correct answer and an IoU of at least 0.3 (3.2).
        well_formed: every trained turn follows the method's grammar to the letter, and its calls were executed.

    Raises:
        UsageError: the records cannot be read or the rows not written, there are none, or none is good enough.
    """
    lines = read_records(Path(records))
    rows, report = rows_of_records(lines, min_accuracy=min_accuracy, min_iou=min_iou, well_formed=well_formed)
    if not rows:
        raise UsageError(f"{records}: no rollout is worth keeping: {report}")
    write_table(table_of_rows(rows), out_parquet)
    return report


def rows_of_records(
    lines: Iterable[Mapping[str, Any]], *, min_accuracy: float | None, min_iou: float, well_formed: bool
) -> tuple[list[dict[str, Any]], ExportReport]:
    """The rows that `export_rollouts` writes for these lines of a file of records, and what became of all lines."""
    report = ExportReport()
    rows: list[dict[str, Any]] = []
    seen: set[tuple[object, ...]] = set()
    for line in lines:
        fault = _fault(line, min_accuracy, min_iou, well_formed)
        if fault is None:
            row = _row(line)
            key = (row["extra_info"]["video_path"], row["extra_info"]["question"], *row["turns"])
            fault = "repetition" if key in seen else None
        if fault is not None:
            report.dropped[fault] += 1
            continue
        seen.add(key)
        report.kept[row["template"]] += 1
        rows.append(row)
    return rows, report


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of `rows_of_records` as a table; `retrieved_frames` is a column if any of them holds some."""
    table = pa.Table.from_pylist(rows)  # its columns are those of the first row, so all rows have the same
    if not rows:
        return table
    number = table.column_names.index("prompt_digest")
    table = table.set_column(number, "prompt_digest", table["prompt_digest"].cast(pa.string()))
    has_answers = any(row["retrieved_frames"] for row in rows)
    return table if has_answers else table.drop_columns("retrieved_frames")  # as in `_row`


def last_segment_iou(trajectory: Trajectory, video_segment: Any) -> float:
    """IoU of the last segment that was shown with the annotated one; 0.0 where either is missing."""
    results = [call.result for call in trajectory.executed_calls()]
    shown = [(result["start_time"], result["end_time"]) for result in results if "start_time" in result]
    return temporal_iou(shown[-1], video_segment) if shown and video_segment is not None else 0.0


def _fault(line: Mapping[str, Any], min_accuracy: float | None, min_iou: float, well_formed: bool) -> str | None:
    """Why a rollout is not kept; None if it is."""
    trajectory: Trajectory = line["trajectory"]
    if trajectory.flags:
        return "flagged"
    if trajectory.stop_reason is not StopReason.ANSWER:
        return str(trajectory.stop_reason)
    if any(turn.truncated for turn in trajectory.turns):
        return "cut turn"
    if any(call.found_no_room() for call in trajectory.calls()):
        return "no room for a call"  # fine-tuning has no such limit: its replay would show what was refused
    reward, method = line["reward"], method_of_rollout(get_method(trajectory.method), trajectory.settings)
    if "ccv" in method.reward_components and reward["ccv"] == 0.0:  # records of every method hold all components
        return "inconsistent"
    if reward.get("accuracy", 0.0) < (method.accuracy_reward if min_accuracy is None else min_accuracy):
        return "wrong answer"
    if min_iou > 0.0 and last_segment_iou(trajectory, line["extra_info"].get("video_segment")) < min_iou:
        return "wrong place"
    trained = trajectory.turns[line.get("first_trained_turn", 0) :]
    if well_formed and not all(turn.well_formed and all(call.ok for call in turn.calls) for turn in trained):
        return "malformed"
    return None


def _row(line: Mapping[str, Any]) -> dict[str, Any]:
    trajectory: Trajectory = line["trajectory"]
    # Parquet has no type for what is empty in every row.
    extra_info = {name: value for name, value in line["extra_info"].items() if value not in (None, {}, [])}
    first_trained_turn = line.get("first_trained_turn", 0)
    return {
        "data_source": line["data_source"],
        "agent_name": trajectory.method,
        "prompt": [{"role": "user", "content": trajectory.question}],
        "ability": "video_qa",
        "reward_model": {"style": "rule", "ground_truth": line["ground_truth"]},
        "extra_info": extra_info,
        "turns": [turn.text for turn in trajectory.turns],
        "template": "reflection" if first_trained_turn else "rollout",
        "first_trained_turn": first_trained_turn,
        "retrieved_frames": recorded_answers(trajectory),
        "settings": json.dumps(trajectory.settings),
        "first_look": json.dumps(trajectory.first_look()),
        "prompt_digest": trajectory.prompt_digest,
    }
