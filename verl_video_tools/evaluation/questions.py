"""The questions of an evaluation: rows of a file or a benchmark, a part of them, with repeats and controls."""

from __future__ import annotations

import hashlib
import random
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.sample import media_of
from verl_video_tools.core.types import Method, Sample
from verl_video_tools.data.formats import Benchmark, BenchmarkFiles, get_benchmark, read_rows
from verl_video_tools.data.formats.subtitles import has_subtitles, without_subtitles
from verl_video_tools.data.generate import RolloutTask, tasks_of_rows
from verl_video_tools.evaluation import Control
from verl_video_tools.methods.direct import Direct

AS_PUBLISHED = "question_as_published"
"""Field of `extra_info`: the question before a control changed it."""

_OTHER_OPTIONS = re.compile(r"\b[A-H](?:, ?[A-H])* ?(?:,|&|/|and|or) ?[A-H]\b|\b(?i:only|options?|not) \(?[A-H]\b")
"""``Both A and B``, ``Only C``, ``Options A, B and D``."""


@dataclass(frozen=True)
class Questions:
    """Questions in order.

    Attributes:
        name: name of the benchmark, or of the file of rows.
        tasks: one task for each question and repeat, in the order of the questions. The uid is the position of the
            question in its file.
        faults: errors of entries that are not valid questions, by position.
        benchmark: None for a file of rows.
        subtitles: which subtitles of the benchmark are shown, and how; None if none are shown.
        num_with_subtitles: number of questions whose video has subtitles; None if they are not shown.
        scope: `where` and `limit` that select a part of the questions; None for all questions.
        repeats: number of times that each question is asked.
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
    """A digest that identifies a question in every run: of its text, without subtitles and changes of a control, and of
    the file name of its video. Equal questions have the same digest."""
    question = without_subtitles(str(extra_info.get(AS_PUBLISHED, extra_info.get("question"))))
    video = PurePath(str(media_of(extra_info))).name
    return hashlib.sha256(f"{video}\n{question}".encode(errors="backslashreplace")).hexdigest()


def questions_of_rows(rows_parquet: Path) -> Questions:
    """The questions of a file of rows, whatever their `agent_name`.

    Raises:
        UsageError: the file cannot be read, or has no rows.
    """
    return Questions(rows_parquet.stem, tasks_of_rows(rows_parquet, num_samples=1), {})


def questions_of_benchmark(spec: str, files: BenchmarkFiles) -> Questions:
    """The questions of a benchmark.

    Args:
        spec: name of the benchmark, or a Python path (`get_benchmark`).

    Raises:
        UsageError: there is no such benchmark, its files cannot be read, or none of its entries is a valid question.
    """
    benchmark = get_benchmark(spec)
    tasks: list[RolloutTask] = []
    faults: dict[int, RowError] = {}
    for number, row in read_rows(benchmark, files):
        if isinstance(row, RowError):
            faults[number] = row
        else:
            tasks.append(RolloutTask(str(number), 0, row))
    if not tasks:
        first = f"; the first: {next(iter(faults.values()))}" if faults else ""
        raise UsageError(
            f"{files.annotations}: none of {len(faults)} entries is a valid question of {benchmark.name}{first}"
        )
    num_with_subtitles = None if files.subtitles is None else sum(has_subtitles(task.row) for task in tasks)
    subtitles = None if files.subtitles is None else "all, before the question"
    return Questions(benchmark.name, tasks, faults, benchmark, subtitles, num_with_subtitles)


# ---------------------------------------------------------------------------------------------------------------- scope


def scoped(
    questions: Questions, *, where: Mapping[str, Any] | None = None, limit: int | None = None, repeats: int = 1
) -> Questions:
    """A part of the questions, in their order, each `repeats` times.

    Faulty entries are in no part, because they have no fields.

    Args:
        where: values by field: `extra_info.groups`, `extra_info` and `data_source`. A list stands for any of its
            values.
        limit: the number of questions, drawn by a hash of question and file name. Every run draws the same ones, and a
            larger limit adds to a smaller one.

    Raises:
        UsageError: no question has such a field or value, or none has all of them.
    """
    tasks: Sequence[RolloutTask] = questions.tasks
    for field, value in (where or {}).items():
        _check(questions.tasks, field, value)
        tasks = [task for task in tasks if _values(value) & set(_fields(task.row).get(field, ()))]
    if not tasks:
        raise UsageError(f"none of {len(questions.tasks)} questions has all of {dict(where or {})}")
    if limit is not None:
        chosen = {task.key for task in sorted(tasks, key=_draw_order)[:limit]}
        tasks = [task for task in tasks if task.key in chosen]
    is_part = bool(where) or limit is not None
    scope = {"where": dict(where or {}), "limit": limit} if is_part else None
    with_subtitles = None if questions.num_with_subtitles is None else sum(has_subtitles(t.row) for t in tasks)
    return replace(
        questions,
        tasks=[replace(task, session_id=number) for task in tasks for number in range(repeats)],
        faults={} if is_part else questions.faults,
        num_with_subtitles=with_subtitles,
        scope=scope,
        repeats=repeats,
    )


def _check(tasks: Sequence[RolloutTask], field: str, value: Any) -> None:
    """Raises UsageError if no question has the field, or one of the values."""
    fields = [_fields(task.row) for task in tasks]
    existing = dict.fromkeys(text for each in fields for text in each.get(field, ()))
    if not existing:
        names = dict.fromkeys(name for each in fields for name in each)
        raise UsageError(f"--where: no question has a field {field!r}; there are {_names(names)}")
    for text in sorted(_values(value) - existing.keys()):
        raise UsageError(f"--where: no question has {field} = {text!r}; its values are {_names(existing)}")


def _fields(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """A row's values as texts, by field; fields of the groups come first."""
    extra_info = row.get("extra_info")
    others = {"data_source": row.get("data_source"), **(extra_info if isinstance(extra_info, Mapping) else {})}
    groups = others.pop("groups", None)
    groups = dict(groups) if isinstance(groups, Mapping) else {}
    fields = groups | {name: value for name, value in others.items() if name not in groups}
    lists = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return {name: [str(each) for each in values if each is not None] for name, values in lists.items()}


def _values(value: Any) -> set[str]:
    return {str(each) for each in (value if isinstance(value, list) else [value])}


def _draw_order(task: RolloutTask) -> tuple[str, int]:
    extra_info = task.row.get("extra_info")
    return question_digest(extra_info if isinstance(extra_info, Mapping) else {}), int(task.uid)


def _names(names: Iterable[str]) -> str:
    """The first of the names, for a message."""
    return ", ".join(repr(name[:80]) for name in islice(names, 20))


# ------------------------------------------------------------------------------------------------------------- controls


def controlled(
    method: Method, questions: Questions, controls: Sequence[Control], seed: int | None
) -> tuple[Method, Questions]:
    """Method and questions with controls applied.

    Args:
        seed: of the order of options; None: 0.

    Raises:
        UsageError: the method needs frames, or no question has options to shuffle.
    """
    if Control.NO_VISUAL in controls:
        if not isinstance(method, Direct):
            raise UsageError(f"{method.name} cannot be asked without frames: its tools show them. Give --method direct")
        method = replace(method, initial_frames=0)
    if Control.SHUFFLED_OPTIONS in controls:
        questions = with_shuffled_options(questions, seed or 0)
    return method, questions


def with_shuffled_options(questions: Questions, seed: int) -> Questions:
    """The questions with their options in another order. A question is a fault if its options cannot be shuffled.

    Raises:
        UsageError: no question has options that can be shuffled.
    """
    tasks: list[RolloutTask] = []
    faults = dict(questions.faults)
    for task in questions.tasks:
        try:
            tasks.append(replace(task, row=_shuffled(task.row, random.Random(f"{seed}/{task.uid}"))))
        except RowError as error:
            faults[int(task.uid)] = error
    if not any(AS_PUBLISHED in task.row["extra_info"] for task in tasks):
        errors = [error for number, error in faults.items() if number not in questions.faults]
        raise UsageError(
            f"--control shuffled-options: of {questions.num_questions} questions none has options that can be shuffled"
            f"{f'; the first: {errors[0]}' if errors else ''}. Leave the control out, or choose other questions"
        )
    return replace(questions, tasks=tasks, faults=faults)


def _shuffled(row: Mapping[str, Any], generator: random.Random) -> dict[str, Any]:
    """A row with its options in another order; unchanged without options.

    Raises:
        RowError: the row is invalid, its question does not list the options as lines `A. text`, an option names others
            by their letters, or there is no truth.
    """
    sample = Sample.from_row(row)
    options, truth = sample.options, sample.ground_truth
    if len(options) < 2 or sample.question_type != "mc":
        return dict(row)
    if not truth:
        raise RowError("options cannot be shuffled: the row has no truth, which would have to follow them")
    listed = _listed(options)
    if sample.question.count(listed) != 1:
        raise RowError(
            f"options cannot be shuffled: the question does not list them once as lines such as {listed!r:.80}"
        )
    if referring := [option for option in options if _OTHER_OPTIONS.search(option)]:
        raise RowError(f"options cannot be shuffled: {referring[0]!r:.80} names others by their letters")
    order = list(range(len(options)))
    while order == sorted(order):
        generator.shuffle(order)
    shuffled = [options[place] for place in order]
    question = sample.question.replace(listed, _listed(shuffled))
    letter = string.ascii_uppercase[order.index(string.ascii_uppercase.index(truth))]
    return {
        **row,
        "prompt": [{"role": "user", "content": question}],
        "reward_model": {**row["reward_model"], "ground_truth": letter},
        "extra_info": {**row["extra_info"], "question": question, "options": shuffled, AS_PUBLISHED: sample.question},
    }


def _listed(options: Sequence[str]) -> str:
    return "\n".join(f"{letter}. {text}" for letter, text in zip(string.ascii_uppercase, options, strict=False))
