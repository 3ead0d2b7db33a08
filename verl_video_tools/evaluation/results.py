"""The result of an evaluation, from its recorded rollouts: nothing in it depends on their order or on time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.grading import decided_by_rule
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.data.formats import Benchmark, GradedItem
from verl_video_tools.data.generate import Record
from verl_video_tools.evaluation.questions import Questions

Figures = dict[str, Any]
"""Counts and means over some items: `items`, `failed`, `accuracy`, `partial`, `frames`, and the benchmark's metrics.

Means run over the items that did not fail, those of verdicts over the ones with a truth; None where there are none.
"""


@dataclass(frozen=True, slots=True)
class _Item:
    """An item that was asked. `graded` is None if it failed, or has no truth."""

    record: Record
    graded: GradedItem | None

    @property
    def is_failed(self) -> bool:
        return bool(self.record["trajectory"].flags)


def summarise(questions: Questions, records: Iterable[Record], protocol: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `results.json`.

    Args:
        records: a record for each question, with `answer_label` where it did not fail and has a truth; of several the
            last one holds.
        protocol: what was evaluated, and how; copied into the result.
    """
    last = {str(record["uid"]): record for record in records}
    items = [_item(last[task.uid]) for task in questions.tasks if task.uid in last]
    groups = _groups(items, questions.benchmark)
    return {
        "protocol": dict(protocol),
        "overall": _figures(items, questions.benchmark, num_faults=len(questions.faults)),
        "groups": {
            name: {value: _figures(members, questions.benchmark) for value, members in values.items()}
            for name, values in groups.items()
        },
        "frames": _frames(items),
        "graded_by": _graded_by(items),
        "stop_reasons": dict(sorted(Counter(str(item.record["trajectory"].stop_reason) for item in items).items())),
        "failures": _failures(questions, items),
    }


def _item(record: Record) -> _Item:
    if record["trajectory"].flags or record["answer_label"] is None:
        return _Item(record, None)
    row = {"extra_info": record["extra_info"], "reward_model": {"ground_truth": record["ground_truth"]}}
    sample = Sample.from_row(row)
    return _Item(record, GradedItem(sample, record["trajectory"].answer, AnswerLabel(record["answer_label"])))


def _groups(items: Sequence[_Item], benchmark: Benchmark | None) -> dict[str, dict[str, list[_Item]]]:
    """Items by name and value of the groups that they belong to, both in order of appearance.

    Rows from several data sets are also tabulated by these.
    """
    groups: dict[str, dict[str, list[_Item]]] = {name: {} for name in (benchmark.groupings if benchmark else ())}
    for item in items:
        own = _own_groups(item.record["extra_info"])
        if benchmark is None:
            own = {"data_source": [item.record["data_source"]], **own}
        for name, members in own.items():
            for member in members:
                groups.setdefault(name, defaultdict(list)).setdefault(str(member), []).append(item)
    if benchmark is None and len(groups.get("data_source", {})) < 2:
        groups.pop("data_source", None)
    return {name: values for name, values in groups.items() if values}


def _own_groups(extra_info: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of `extra_info.groups`, which rows of a user may hold in any form: what is no list is one value."""
    groups = extra_info.get("groups")
    given = groups.items() if isinstance(groups, Mapping) else ()
    return {name: value if isinstance(value, list) else [value] for name, value in given if value not in (None, "")}


def _figures(items: Sequence[_Item], benchmark: Benchmark | None, num_faults: int = 0) -> Figures:
    graded = [item.graded for item in items if item.graded is not None]
    metrics = benchmark.metrics(graded) if benchmark is not None and graded else {}
    return {
        "items": len(items) + num_faults,
        "failed": sum(item.is_failed for item in items) + num_faults,
        "accuracy": _mean([item.label is AnswerLabel.CORRECT for item in graded]),
        "partial": _mean([item.label is AnswerLabel.PARTIAL for item in graded]),
        "frames": _frames(items)["total"]["mean"],
        **metrics,
    }


def _frames(items: Sequence[_Item]) -> dict[str, Any]:
    """Frames shown, in all and per item that did not fail; and turns and executed calls."""
    counts = [item.record["trajectory"].counts() for item in items if not item.is_failed]
    numbers = {
        "initial": [count["initial_frames"] for count in counts],
        "tool": [count["tool_frames"] for count in counts],
        "total": [count["initial_frames"] + count["tool_frames"] for count in counts],
        "executed_calls": [count["executed_calls"] for count in counts],
        "turns": [count["assistant_turns"] for count in counts],
    }
    return {name: {"sum": sum(values), "mean": _mean(values)} for name, values in numbers.items()}


def _graded_by(items: Sequence[_Item]) -> dict[str, int]:
    """How many answers a rule decided, by type of question, how many the judge did, and on how many it failed."""
    graded_by: Counter[str] = Counter()
    for item in items:
        if item.graded is not None:
            sample = item.graded.sample
            by_rule = decided_by_rule(item.graded.answer, sample) is not None
            graded_by[f"rule for {sample.question_type}" if by_rule else "judge"] += 1
        elif JUDGE_FLAG in item.record["trajectory"].flags:
            graded_by["judge failed"] += 1
    return dict(sorted(graded_by.items()))


def _failures(questions: Questions, items: Sequence[_Item]) -> list[dict[str, Any]]:
    """What failed, by name, in order of the questions."""
    failures = {
        number: {"item": f"entry {number}", "flags": ["row_error"], "reason": str(error)}
        for number, error in questions.faults.items()
    }
    for item in items:
        trajectory = item.record["trajectory"]
        if trajectory.flags:
            number = int(item.record["uid"])
            name = _name(number, item.record["extra_info"].get("index"), questions.benchmark)
            failures[number] = {"item": name, "flags": trajectory.flags, "reason": trajectory.error}
    return [failures[number] for number in sorted(failures)]


def _name(number: int, index: Any, benchmark: Benchmark | None) -> Any:
    """What a benchmark calls the question. In rows of a user several may have one `index`: their places keep them
    apart."""
    if benchmark is not None:
        return index
    return f"row {number}" if index is None else f"row {number} (index {index})"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
