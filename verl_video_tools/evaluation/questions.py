"""What is asked: the rows of a file, or a benchmark's questions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.sample import media_of
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, get_benchmark, read_rows
from verl_video_tools.data.formats.subtitles import SUBTITLE_FORMS, asked_with_subtitles, without_subtitles
from verl_video_tools.data.generation.task import RolloutTask, tasks_of_rows

AS_PUBLISHED = "question_as_published"
"""Field of `extra_info`: the question before a control has changed it."""


@dataclass(frozen=True)
class Questions:
    """Questions in order.

    Attributes:
        name: of the benchmark, or of the file of rows.
        tasks: in the order of the questions; the uid is the question's place in its file.
        faults: what is wrong with entries that are no questions, by place.
        benchmark: None for a file of rows.
        subtitles: how the benchmark's subtitles are shown, None if they are not.
        num_with_subtitles: questions whose video has any; None if they are not shown.
        scope: which part of the questions these are, by `where` and `limit`; None for all.
        repeats: how often each is asked; there is a task for each time.
    """

    name: str
    tasks: Sequence[RolloutTask]
    faults: dict[int, RowError]
    benchmark: Benchmark | None = None
    subtitles: str | None = None
    num_with_subtitles: int | None = None
    scope: Mapping[str, Any] | None = None
    repeats: int = 1

    @property
    def num_questions(self) -> int:
        return len(self.tasks) // self.repeats


def question_digest(extra_info: Mapping[str, Any]) -> str:
    """What a question is known by in every run: its text, without subtitles and the changes of a control, and the name
    of its video, wherever that lies. Several may have the same."""
    question = without_subtitles(str(extra_info.get(AS_PUBLISHED, extra_info.get("question"))))
    video = PurePath(str(media_of(extra_info))).name
    return hashlib.sha256(f"{video}\n{question}".encode(errors="backslashreplace")).hexdigest()


def questions_of_rows(rows_parquet: Path) -> Questions:
    """The rows of a file, whatever their `agent_name`.

    Raises:
        UsageError: the file cannot be read, or has no rows.
    """
    return Questions(rows_parquet.stem, tasks_of_rows(rows_parquet, num_samples=1), {})


def questions_of_benchmark(spec: str, files: BenchmarkFiles) -> Questions:
    """A benchmark's questions.

    Args:
        spec: the benchmark's name, or a Python path (`get_benchmark`).

    Raises:
        UsageError: there is no such benchmark, its files cannot be read, none of its entries is a question, or none of
            the questions has subtitles that are to be shown.
    """
    benchmark = get_benchmark(spec)
    tasks: list[RolloutTask] = []
    faults: dict[int, RowError] = {}
    for number, row in read_rows(benchmark, files):
        if isinstance(row, RowError):
            faults[number] = row
        else:
            tasks.append(RolloutTask(str(number), 0, row, is_graded=benchmark.is_graded))
    if not tasks:
        first = f"; the first: {next(iter(faults.values()))}" if faults else ""
        raise UsageError(f"{files.annotations}: none of {len(faults)} entries is a question of {benchmark.name}{first}")
    num_with_subtitles = None if files.subtitles is None else sum(asked_with_subtitles(task.row) for task in tasks)
    return Questions(benchmark.name, tasks, faults, benchmark, _subtitles(benchmark, files), num_with_subtitles)


def _subtitles(benchmark: Benchmark, files: BenchmarkFiles) -> str | None:
    if files.subtitles is None or benchmark.subtitle_form is None:
        return None
    form = SUBTITLE_FORMS[benchmark.subtitle_form]
    which = "all" if files.subtitle_frames is None else f"those shown at {files.subtitle_frames} evenly spaced frames"
    return f"{which}, {form}"
