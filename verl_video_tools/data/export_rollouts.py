"""Recorded rollouts that pass filters, as rows for fine-tuning.

A cold start takes those of an expert (`vvt data generate`, also with `--reflect`), reinforcement fine-tuning the
policy's own (LongVT, paper 3.2 and 4.3), with rows of the cold start beside them.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.prompts import UNKNOWN_PROMPT
from verl_video_tools.core.types import StopReason, Trajectory
from verl_video_tools.data.parquet import read_table, write_table
from verl_video_tools.data.picture_rows import weights_of_turns
from verl_video_tools.grading.overlap import temporal_iou
from verl_video_tools.grading.segments import RIGHT_OVERLAP
from verl_video_tools.methods import get_method
from verl_video_tools.records.metrics import components_of
from verl_video_tools.records.records import read_records
from verl_video_tools.services.retrieval import recorded_answers
from verl_video_tools.services.tool_model import recorded_exchanges

COLD_SHARE = 0.94
"""Share of cold-start rows in LongVT's published data for RFT: 247,996 beside 15,353 rollouts (sizes of table 1; the
published configuration lists the files of both)."""


@dataclass(frozen=True)
class ExportReport:
    """What became of the rows of an export.

    Attributes:
        kept: rows written, by kind (cold start: by template).
        dropped: rows left out, by reason: "wrong answer", "inconsistent", "flagged", or the stop reason of a rollout
            that did not end in an answer.
    """

    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "none"

        return (
            f"kept {self.kept.total()} ({listed(self.kept)}), dropped {self.dropped.total()} ({listed(self.dropped)})"
        )


def export_rollouts(
    records: str | Path,
    out_parquet: str | Path,
    *,
    min_accuracy: float | None = None,
    min_iou: float = 0.0,
    well_formed: bool = False,
    min_step: int | None = None,
    max_step: int | None = None,
    cold_start: Sequence[str | Path] = (),
    cold_share: float = COLD_SHARE,
    seed: int = 0,
    keep_reasoning: bool = False,
) -> ExportReport:
    """Write the good ones among recorded rollouts as rows with turns, for `verl_plugin.sft_dataset`.

    A rollout is kept if it ended with an answer, unflagged, with no turn cut and no call refused for a budget; if it
    passed its method's consistency check, where there is one; if it is as right, as near and as well-formed as asked;
    and if it took the form that it was to take and no check of its logic rejected it. Rollouts of a question that say
    the same are written once. Reflections keep their `turn_weights`. The columns `settings` and
    `initial_frames` (JSON) say which config of its group a rollout had, and what it was shown: fine-tuning has to show
    the same. `prompt_digest` is that of a system prompt of the user's.

    Args:
        records: a file of records (`vvt data generate`), or the folder of a training run (docs/training.md).
        min_accuracy: of the recorded reward component `accuracy`; None: that of a correct answer by the method's
            defaults and what the rollout had of its own.
        min_iou: overlap of the last segment that was shown with the annotated one, which only LongVT records; 0.0 asks
            for none. LongVT's paper takes a correct answer and an IoU of at least 0.3 (3.2).
        well_formed: every trained turn follows the method's grammar to the letter, and its calls were executed.
        min_step, max_step: of the steps that the rollouts were recorded in, the first and the last that count; None:
            all. LongVT's paper takes "early" runs (3.2) and says no more.
        cold_start: files of rows with turns that are written behind the rollouts; rollouts alone let a policy forget
            what none of them shows (docs/learning.md).
        cold_share: their share of all rows, at most; where the files have more rows, they are drawn by `seed`.
        keep_reasoning: write recorded native reasoning as a column `reasoning`, for a model that shall reason so, too.

    Returns:
        What became of the rollouts; the rows of the cold start are kept as "cold start".

    Raises:
        UsageError: the files cannot be read or the rows not written, there are no rollouts, or none is good enough, or
            a file of the cold start has no turns.
    """
    if min_step is not None and max_step is not None and min_step > max_step:
        raise UsageError(f"no step lies between min_step={min_step} and max_step={max_step}")
    first, last = (-math.inf if min_step is None else min_step), (math.inf if max_step is None else max_step)
    lines = (line for line in read_records(Path(records), must_exist=True) if first <= int(line["step"]) <= last)
    rows, report = rows_of_records(
        lines, min_accuracy=min_accuracy, min_iou=min_iou, well_formed=well_formed, keep_reasoning=keep_reasoning
    )
    if not rows:
        raise UsageError(f"{records}: no rollout passes the filters: {report}")
    table = table_of_rows(rows)
    if cold_start:
        cold = rows_beside(len(rows), cold_start, cold_share, seed)
        report.kept["cold start"] += cold.num_rows
        table = pa.concat_tables([table, cold], promote_options="permissive")
    write_table(table, out_parquet)
    return report


def rows_beside(num_rows: int, files: Sequence[str | Path], share: float, seed: int = 0) -> pa.Table:
    """Rows of the files, drawn by `seed` and in their order, so many that they are the share of all with `num_rows`
    others; all of them where they are fewer.

    Raises:
        UsageError: the share is not from 0 to below 1, or a file cannot be read or has no turns.
    """
    if not 0.0 <= share < 1.0:
        raise UsageError(f"the share of the cold start must be from 0 to below 1, got {share:g}")
    tables = [read_table(path) for path in files]
    for path, table in zip(files, tables, strict=True):
        if not {"turns", "agent_name"} <= set(table.column_names):
            raise UsageError(f"{path}: no rows with turns; `vvt data export-sft` and `convert --turns` write such rows")
    cold = pa.concat_tables(map(_with_digests, tables), promote_options="permissive")
    num_cold = round(num_rows * share / (1.0 - share))
    if num_cold >= cold.num_rows:
        return cold
    return cold.take(sorted(random.Random(seed).sample(range(cold.num_rows), num_cold)))


def _with_digests(table: pa.Table) -> pa.Table:
    """Rows of a file without `prompt_digest`, as converted ones are, say so beside others that have one."""
    if "prompt_digest" in table.column_names:
        return table
    return table.append_column("prompt_digest", pa.array([UNKNOWN_PROMPT] * table.num_rows))


def rows_of_records(
    lines: Iterable[Mapping[str, Any]],
    *,
    min_accuracy: float | None,
    min_iou: float,
    well_formed: bool,
    keep_reasoning: bool = False,
) -> tuple[list[dict[str, Any]], ExportReport]:
    """The rows that `export_rollouts` writes for these lines of a file of records, and what became of all lines."""
    report = ExportReport()
    rows: list[dict[str, Any]] = []
    seen: set[tuple[object, ...]] = set()
    for line in lines:
        fault = _fault(line, min_accuracy, min_iou, well_formed)
        if fault is None:
            row = _row(line, keep_reasoning)
            extra_info = row["extra_info"]
            media = extra_info.get("video_path") or (
                *(extra_info.get("video_paths") or ()),
                *(extra_info.get("image_paths") or ()),
            )
            key = (media, extra_info["question"], *row["turns"])
            fault = "repetition" if key in seen else None
        if fault is not None:
            report.dropped[fault] += 1
            continue
        seen.add(key)
        report.kept[row["template"]] += 1
        rows.append(row)
    return rows, report


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of `rows_of_records` as a table; `retrieved_frames`, `model_calls` and `picture_digests` are columns if any
    row holds some."""
    table = pa.Table.from_pylist(rows)  # its columns are those of the first row, so all rows have the same
    if not rows:
        return table
    empty = {"retrieved_frames": [], "model_calls": "[]", "picture_digests": "[]"}
    table = table.drop_columns([name for name, value in empty.items() if all(row[name] == value for row in rows)])
    number = table.column_names.index("prompt_digest")
    return table.set_column(number, "prompt_digest", table["prompt_digest"].cast(pa.string()))


def last_segment_iou(trajectory: Trajectory, video_segment: Any) -> float:
    """IoU of the last segment that was shown with the annotated one; 0.0 where either is missing."""
    results = [call.result for call in trajectory.executed_calls()]
    segments = [(result["start_time"], result["end_time"]) for result in results if "start_time" in result]
    return temporal_iou(segments[-1], video_segment) if segments and video_segment is not None else 0.0


def _fault(line: Mapping[str, Any], min_accuracy: float | None, min_iou: float, well_formed: bool) -> str | None:
    """Why a rollout is not kept; None if it is."""
    trajectory: Trajectory = line["trajectory"]
    if trajectory.flags:
        return "flagged"
    if trajectory.stop_reason is not StopReason.ANSWER:
        return str(trajectory.stop_reason)
    if any(turn.truncated for turn in trajectory.turns):
        return "cut turn"
    if line.get("template_fault") is not None:
        return "other form"
    if (logic := line.get("logic")) is not None and not logic["consistent"]:
        return "illogical"
    if any(call.exceeded_budget() for call in trajectory.calls()):
        return "no room for a call"  # fine-tuning has no such limit: its replay would show what was refused
    reward = line["reward"]
    if "ccv" in components_of(trajectory) and reward["ccv"] == 0.0:  # records of every method hold all components
        return "inconsistent"
    if not _is_right(line, min_accuracy):
        return "wrong answer"
    if min_iou > 0.0 and last_segment_iou(trajectory, line["extra_info"].get("video_segment")) < min_iou:
        return "wrong place"
    trained = [turn for turn, weight in zip(trajectory.turns, _weights(line), strict=True) if weight]
    if well_formed and not all(turn.well_formed and all(call.ok for call in turn.calls) for turn in trained):
        return "malformed"
    return None


def _is_right(line: Mapping[str, Any], min_accuracy: float | None) -> bool:
    """Whether an answer earned as much as a right one, or at least `min_accuracy`.

    A named segment is right from the overlap at which answers are graded as correct: some methods pay the overlap.
    """
    trajectory: Trajectory = line["trajectory"]
    reward = line["reward"]
    if min_accuracy is not None:
        return reward.get("accuracy", 0.0) >= min_accuracy
    least = RIGHT_OVERLAP if line["extra_info"].get("question_type") == "segment" else 1.0
    if trajectory.provenance is not None:  # what a right answer earns is said in a file that is not at hand
        return reward.get("acc", 0.0) >= least
    method = method_of_rollout(get_method(trajectory.method), trajectory.settings)
    return reward.get("accuracy", 0.0) >= least * method.accuracy_reward


def _weights(line: Mapping[str, Any]) -> list[float]:
    return weights_of_turns({**line, "turns": line["trajectory"].turns})


def _row(line: Mapping[str, Any], keep_reasoning: bool) -> dict[str, Any]:
    trajectory: Trajectory = line["trajectory"]
    # Parquet has no type for what is empty in every row.
    extra_info = {name: value for name, value in line["extra_info"].items() if value not in (None, {}, [])}
    weights = _weights(line)
    return {
        "data_source": line["data_source"],
        "agent_name": trajectory.method,
        "prompt": [{"role": "user", "content": trajectory.question}],
        "ability": "video_qa",
        "reward_model": {"style": "rule", "ground_truth": line["ground_truth"]},
        "extra_info": extra_info,
        "turns": [turn.text for turn in trajectory.turns],
        "template": line.get("template") or ("rollout" if all(weights) else "reflection"),
        "turn_weights": weights,
        "retrieved_frames": recorded_answers(trajectory),
        "model_calls": json.dumps(recorded_exchanges(trajectory)),
        "picture_digests": json.dumps(trajectory.picture_digests()),
        "settings": json.dumps(trajectory.settings),
        "initial_frames": json.dumps(trajectory.initial_frame_indices()),
        "prompt_digest": trajectory.prompt_digest,
        **({"reasoning": [turn.reasoning for turn in trajectory.turns]} if keep_reasoning else {}),
    }
