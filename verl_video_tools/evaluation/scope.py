"""Which of the questions are asked, and how often: `--where`, `--limit`, `--repeats`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.formats.subtitles import asked_with_subtitles
from verl_video_tools.data.generation.task import RolloutTask
from verl_video_tools.evaluation.questions import Questions, question_digest

_MOST_NAMES_TOLD = 20


def scoped(
    questions: Questions, *, where: Mapping[str, Any] | None = None, limit: int | None = None, repeats: int = 1
) -> Questions:
    """Some of the questions, in their order, each asked `repeats` times.

    Args:
        where: values by field. Fields are those of `extra_info.groups`, `extra_info` and `data_source`; a list of
            values stands for any of them.
        limit: so many of these, drawn by a hash of question and video: the same ones in every run and wherever the
            videos lie, and a larger limit adds to a smaller one's.

    Entries that cannot be read have no fields: a part of the questions does without them.

    Raises:
        UsageError: no question has such a field or value, or none has all of them.
    """
    tasks: Sequence[RolloutTask] = questions.tasks
    for field, value in (where or {}).items():
        _check(questions.tasks, field, value)
        tasks = [task for task in tasks if _wanted(value) & set(_fields(task.row).get(field, ()))]
    if not tasks:
        raise UsageError(f"none of {len(questions.tasks)} questions has all of {dict(where or {})}")
    if limit is not None:
        chosen = {task.key for task in sorted(tasks, key=_lot)[:limit]}
        tasks = [task for task in tasks if task.key in chosen]
    is_part = bool(where) or limit is not None
    scope = {"where": dict(where or {}), "limit": limit} if is_part else None
    with_subtitles = None if questions.num_with_subtitles is None else sum(asked_with_subtitles(t.row) for t in tasks)
    return replace(
        questions,
        tasks=[replace(task, session_id=number) for task in tasks for number in range(repeats)],
        faults={} if is_part else questions.faults,
        num_with_subtitles=with_subtitles,
        scope=scope,
        repeats=repeats,
    )


def _check(tasks: Sequence[RolloutTask], field: str, value: Any) -> None:
    fields = [_fields(task.row) for task in tasks]
    names = dict.fromkeys(name for each in fields for name in each)
    if field not in names:
        raise UsageError(f"--where: no question has a field {field!r}; there are {_told(list(names))}")
    values = dict.fromkeys(text for each in fields for text in each.get(field, ()))
    for text in sorted(_wanted(value) - values.keys()):
        raise UsageError(f"--where: no question has {field} = {text!r}; its values are {_told(list(values))}")


def _fields(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """A row's values as texts, by field; those of the groups first."""
    extra_info = row.get("extra_info")
    given = dict(extra_info) if isinstance(extra_info, Mapping) else {}
    groups = given.pop("groups", None)
    found = {**(groups if isinstance(groups, Mapping) else {})}
    for name, value in (*given.items(), ("data_source", row.get("data_source"))):
        found.setdefault(name, value)
    lists = {name: value if isinstance(value, list) else [value] for name, value in found.items()}
    return {name: [str(each) for each in values if each is not None] for name, values in lists.items() if values}


def _wanted(value: Any) -> set[str]:
    return {str(each) for each in (value if isinstance(value, list) else [value])}


def _lot(task: RolloutTask) -> tuple[str, int]:
    extra_info = task.row.get("extra_info")
    return question_digest(extra_info if isinstance(extra_info, Mapping) else {}), int(task.uid)


def _told(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES_TOLD} more" if len(names) > _MOST_NAMES_TOLD else ""
    return f"{', '.join(repr(name[:80]) for name in names[:_MOST_NAMES_TOLD])}{more}"
