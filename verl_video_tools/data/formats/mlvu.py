"""MLVU (arXiv 2406.04264): multiple-choice questions of seven tasks (dev) or nine (test) on long videos.

Format, dev: the folder `json` with a file per task, `1_plotQA.json` to `7_topic_reasoning.json`, lists of `video`,
`duration`, `question`, `candidates`, `answer` (the text of one), `question_type`; videos `<task>/<video>`, such as
`1_plotQA/movie.mp4`. Test: `test-ground-truth/test_mcq_gt.json`, a list of the same fields with a `question_id` and six
candidates (the other files of the data set MLVU/MLVU_Test have no answers); videos in one folder. Both also as the
data sets of lmms-eval: `video_name`, `question` with its option lines, `answer` as a letter, `task_type`.
Read from data/ and Evaluation_Test/ of github.com/JUNJIE99/MLVU and lmms_eval/tasks/mlvu of
github.com/EvolvingLMMs-Lab/lmms-eval; name and fields of the file with the answers second-hand, from loaders in public
repositories.

The two tasks of free text (8_sub_scene, 9_summary) are left out: their score is a rubric of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from verl_video_tools.core.errors import RowError
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, GradedItem
from verl_video_tools.data.formats.entries import Entry, ReadEntry, Row, benchmark_row, required
from verl_video_tools.data.formats.fields import (
    ANNOTATION_FILE,
    find_first_video,
    letter_of,
    listed_options,
    read_folder,
    split_options,
    told_with_file,
)
from verl_video_tools.data.formats.means import mean_of_groups

TASK_FILES = ("1_plotQA", "2_needle", "3_ego", "4_count", "5_order", "6_anomaly_reco", "7_topic_reasoning")


class MLVUDev(Benchmark):
    """See the module."""

    name: ClassVar[str] = "mlvu-dev"
    split: ClassVar[str] = "dev"
    groupings: ClassVar[tuple[str, ...]] = ("task",)

    def entries(self, annotations: Path) -> Iterable[ReadEntry]:
        """The questions of a folder of task files, or of one file."""
        return read_folder(annotations, TASK_FILES if annotations.is_dir() else (annotations.stem,))

    def row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        with told_with_file(entry):
            return self._row(entry, files)

    def _row(self, entry: Entry, files: BenchmarkFiles) -> Row:
        file, number = entry[ANNOTATION_FILE]
        video = str(required(entry, "video", "video_name"))
        question = str(required(entry, "question"))
        if entry.get("candidates"):
            options = listed_options(entry["candidates"], "candidates")
        else:
            question, options = split_options(question)
        if not options:
            raise RowError("the field 'candidates' is missing, and the question has no option lines")
        return benchmark_row(
            self.name,
            index=entry.get("question_id") or f"{file}_{number}",
            split=self.split,
            video_path=find_first_video(files.videos, (f"{file}/{video}", video)),
            question=question,
            options=options,
            truth=letter_of(required(entry, "answer"), options, "answer"),
            groups={"task": str(required(entry, "question_type", "task_type"))},
        )

    def metrics(self, items: Sequence[GradedItem]) -> dict[str, float]:
        """`m_avg`: the mean of the tasks' accuracies, which MLVU ranks by."""
        return {"m_avg": mean_of_groups(items, "task")}


class MLVUTest(MLVUDev):
    """See the module."""

    name: ClassVar[str] = "mlvu-test"
    split: ClassVar[str] = "test"
