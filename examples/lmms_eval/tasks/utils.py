"""The functions that the tasks of this folder name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.grading.answers import decided_by_rule
from verl_video_tools.grading.segments import overlap


def _of_types(rows: Any, *types: str) -> Any:
    return rows.filter(lambda row: Sample.from_row(row).question_type in types)


def choice_rows(rows: Any) -> Any:
    """The multiple-choice questions of a data set."""
    return _of_types(rows, "mc")


def open_rows(rows: Any) -> Any:
    """The questions of a data set that a number or a text answers."""
    return _of_types(rows, "numeric", "regression", "open")


def segment_rows(rows: Any) -> Any:
    """The questions of a data set that a segment of time answers."""
    return _of_types(rows, "segment")


def doc_to_visual(doc: Mapping[str, Any]) -> list[str]:
    """The path of the row's video."""
    return [Sample.from_row(doc).video_path]


def doc_to_text(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> str:
    """The question with its options."""
    return Sample.from_row(doc).question


def doc_to_target(doc: Mapping[str, Any]) -> str:
    """The truth."""
    return Sample.from_row(doc).ground_truth


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """1.0 under `accuracy` for an answer that our rule calls right."""
    label = decided_by_rule(results[0], Sample.from_row(doc))
    return {"accuracy": float(label is AnswerLabel.CORRECT)}


def process_segments(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """`accuracy`, and the overlap with the true segment under `mean_iou`."""
    return {**process_results(doc, results), "mean_iou": overlap(results[0], Sample.from_row(doc).ground_truth)}
