"""MLVU's two tasks of free text (arXiv 2406.04264): what happens in a scene of a long video, and a summary of one.

Format: of the folder `json` (see `plain.MLVUDev`) the files `8_sub_scene.json` and `9_summary.json`, lists of `video`,
`question`, `question_type`, `answer`, the first also with `scoring_points`; videos `<task>/<video>`.

A judge scores each answer twice, from 1 to 5: of a scene, by its scoring points, accuracy and relevance; of a summary,
by the reference, completeness and reliability. A task's score, from 2 to 10, is the sum of its two means, and G-Avg the
mean of the tasks' scores. Read from evaluation/generation_evaluation of github.com/JUNJIE99/MLVU, which asks GPT-4;
instructions here are in our words (`services.judge.rubrics`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from verl_video_tools.data.formats import BenchmarkFiles, GradedItem
from verl_video_tools.data.formats.entries import ANNOTATION_FILE, Entry, ReadEntry, Row, read_folder, required
from verl_video_tools.data.formats.mapped import MappedBenchmark

FILES = {"8_sub_scene": "mlvu-sub-scene", "9_summary": "mlvu-summary"}
"""The rubric of each."""


class MLVUDevGeneration(MappedBenchmark):
    """See the module."""

    name = "mlvu-dev-generation"
    groupings = ("task",)
    other_metrics = score_metrics = ("g_avg",)
    index = "{place}"
    split = "dev"
    type_without_options = "open"
    answer = "reference"
    videos = ("{file}/{video}", "{video}")

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of the folder, or of one of its files."""
        return read_folder(annotations, tuple(FILES))

    def derived(self, entry: Entry) -> Mapping[str, Any]:
        """The task, by its `file`, the question's `place` in that, and the `reference` that its answer is scored by."""
        file, number = entry[ANNOTATION_FILE]
        reference = required(entry, "scoring_points" if file == "8_sub_scene" else "answer")
        return {
            "task": file.partition("_")[2],
            "file": file,
            "place": f"{file}_{number}",
            "reference": "\n".join(map(str, reference)) if isinstance(reference, list) else reference,
        }

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        row = super().row(entry, files)
        row["extra_info"]["rubric"] = FILES[entry[ANNOTATION_FILE][0]]
        return row

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """`g_avg`; of the items of one task it is that task's score."""
        tasks: dict[str, list[int]] = defaultdict(list)
        for item in items:
            tasks[str(item.groups["task"])].append(sum(item.scores.values()))
        return {"g_avg": fmean(map(fmean, tasks.values()))}
