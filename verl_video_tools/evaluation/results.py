"""The result of an evaluation, from its recorded rollouts: nothing in it depends on their order or on time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import stdev
from typing import Any

from verl_video_tools.core.grading import decided_by_rule
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.data.extractors import Extractor
from verl_video_tools.data.formats import Benchmark, GradedItem
from verl_video_tools.evaluation.asked_items import AskedItem
from verl_video_tools.evaluation.calls import call_figures
from verl_video_tools.evaluation.costs import summed
from verl_video_tools.evaluation.metrics import mean_metrics
from verl_video_tools.evaluation.published import SUFFIX, num_unreadable, published_figures
from verl_video_tools.evaluation.questions import Questions
from verl_video_tools.evaluation.uncertainty.results import metric_intervals, share_intervals

Figures = dict[str, Any]
"""Counts and means over some items: `items`, `failed`, `accuracy`, `partial`, `frames`, `visual_tokens`, the
benchmark's metrics, the number of `videos`, 95 % `intervals` of accuracy, partial and metrics, and how many answers are
`unreadable`; with a published extractor also `accuracy_published` and its other figures (`published_figures`).

Means run over the items that did not fail, those of verdicts over the ones with a truth; None where there are none. An
item that was asked several times counts as the mean of those times. An interval is None where there are too few videos
for one.
"""


def summarise(
    questions: Questions,
    items: Sequence[AskedItem],
    protocol: Mapping[str, Any],
    extractor: Extractor | None = None,
) -> dict[str, Any]:
    """The content of `results.json`.

    Args:
        protocol: what was evaluated, and how; copied into the result.
        extractor: the published rule that the items were also read by.
    """
    groups = _groups(items, questions.benchmark)
    return {
        "protocol": dict(protocol),
        "overall": _figures(items, questions.benchmark, extractor, num_faults=len(questions.faults)),
        "groups": {
            name: {value: _figures(members, questions.benchmark, extractor) for value, members in values.items()}
            for name, values in groups.items()
        },
        "frames": _frames(items),
        "costs": summed([item.costs for item in items if not item.is_failed]),
        "calls": _calls(items),
        **({"repeats": _repeats(items, questions.repeats)} if questions.repeats > 1 else {}),
        "graded_by": _graded_by(items, questions.benchmark),
        "stop_reasons": dict(sorted(Counter(str(item.record["trajectory"].stop_reason) for item in items).items())),
        "failures": _failures(questions, items),
    }


def differing_items(questions: Questions, items: Iterable[AskedItem]) -> list[dict[str, Any]]:
    """The answers that our grader and the published extractor judge differently (`ReadItem.difference`); none without
    an extractor."""
    return [
        item.read.difference({"item": _name_of(item, questions.benchmark), **_repeat(item, questions)})
        for item in items
        if item.read is not None and item.read.differs
    ]


def _groups(items: Sequence[AskedItem], benchmark: Benchmark | None) -> dict[str, dict[str, list[AskedItem]]]:
    """Items by name and value of the groups that they belong to, both in order of appearance.

    Rows from several data sets are also tabulated by these.
    """
    groups: dict[str, dict[str, list[AskedItem]]] = {name: {} for name in (benchmark.groupings if benchmark else ())}
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


def _figures(
    items: Sequence[AskedItem], benchmark: Benchmark | None, extractor: Extractor | None, num_faults: int = 0
) -> Figures:
    answered = _by_item([item for item in items if item.graded is not None])
    graded = [item.graded for times in answered for item in times if item.graded is not None]
    read = [item.read for times in answered for item in times if item.read is not None]
    published = [item.published for item in read]
    videos = [times[0].video for times in answered]
    shares = {
        name: [_share([item.graded for item in times], label) for times in answered]
        for name, label in (("accuracy", AnswerLabel.CORRECT), ("partial", AnswerLabel.PARTIAL))
    }
    if extractor is not None:
        verdicts = [[None if item.read is None else item.read.published for item in times] for times in answered]
        shares[f"accuracy{SUFFIX}"] = [_share(times, AnswerLabel.CORRECT) for times in verdicts]
    num_items = len(_by_item(items)) + num_faults
    published_metrics = {f"{name}{SUFFIX}": each for name, each in metric_intervals(published, benchmark).items()}
    return {
        "items": num_items,
        "failed": num_items - len(_by_item([item for item in items if not item.is_failed])),
        **{name: _mean(values) for name, values in shares.items()},
        "unreadable": num_unreadable(graded),
        "frames": _frames(items)["total"]["mean"],
        "visual_tokens": _mean_visual_tokens(items),
        **mean_metrics(benchmark, graded),
        **(published_figures(read, benchmark) if extractor is not None else {}),
        "videos": len(set(videos)),
        "intervals": {
            **share_intervals(shares, videos),
            **metric_intervals(graded, benchmark),
            **published_metrics,
        },
    }


def _by_item(items: Sequence[AskedItem]) -> list[list[AskedItem]]:
    """The times that each item was asked."""
    times: dict[str, list[AskedItem]] = {}
    for item in items:
        times.setdefault(item.uid, []).append(item)
    return list(times.values())


def _share(times: Sequence[GradedItem | None], label: AnswerLabel) -> float:
    return sum(item is not None and item.label is label for item in times) / len(times)


def _mean_visual_tokens(items: Sequence[AskedItem]) -> float | None:
    found = summed([item.costs for item in items if not item.is_failed])["visual_tokens"]
    return None if found is None else found["mean"]


def _repeats(items: Sequence[AskedItem], repeats: int) -> dict[str, Any]:
    """Accuracy of each time that all items were asked, the mean of these, and their standard deviation."""
    accuracies = []
    for number in range(repeats):
        times = [item.graded for item in items if item.repeat == number]
        accuracies.append(_mean([_share([graded], AnswerLabel.CORRECT) for graded in times if graded is not None]))
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    spread = stdev(known) if len(known) > 1 else None
    return {"number": repeats, "accuracy": accuracies, "mean": _mean(known), "standard_deviation": spread}


def _frames(items: Sequence[AskedItem]) -> dict[str, Any]:
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


def _calls(items: Sequence[AskedItem]) -> dict[str, Any]:
    answered = [item.record for item in items if not item.is_failed]
    classes = [record["extra_info"].get("classification") for record in answered]
    told = [None if each is None else str(each) for each in classes]
    return call_figures([record["trajectory"] for record in answered], told)


def _graded_by(items: Sequence[AskedItem], benchmark: Benchmark | None) -> dict[str, int]:
    """How many answers a rule decided, by type of question, how many the judge or the benchmark's own rule did, and on
    how many the judge failed."""
    judge = "judge" if benchmark is None or benchmark.judge() is None else f"rule of {benchmark.name}"
    graded_by: Counter[str] = Counter()
    for item in items:
        if item.graded is not None:
            sample = item.graded.sample
            by_rule = decided_by_rule(item.graded.answer, sample) is not None
            graded_by[f"rule for {sample.question_type}" if by_rule else judge] += 1
        elif JUDGE_FLAG in item.record["trajectory"].flags:
            graded_by["judge failed"] += 1
    return dict(sorted(graded_by.items()))


def _failures(questions: Questions, items: Sequence[AskedItem]) -> list[dict[str, Any]]:
    """What failed, by name, in order of the questions; of items that are asked several times, also which time."""
    failures: dict[tuple[int, int], dict[str, Any]] = {
        (number, 0): {"item": f"entry {number}", "flags": ["row_error"], "reason": str(error)}
        for number, error in questions.faults.items()
    }
    for item in items:
        trajectory = item.record["trajectory"]
        if trajectory.flags:
            told = {"item": _name_of(item, questions.benchmark), **_repeat(item, questions)}
            failures[int(item.uid), item.repeat] = {**told, "flags": trajectory.flags, "reason": trajectory.error}
    return [failures[key] for key in sorted(failures)]


def _name_of(item: AskedItem, benchmark: Benchmark | None) -> Any:
    """What a benchmark calls the question. In rows of a user several may have one `index`: their places keep them
    apart."""
    index = item.record["extra_info"].get("index")
    if benchmark is not None:
        return index
    return f"row {item.uid}" if index is None else f"row {item.uid} (index {index})"


def _repeat(item: AskedItem, questions: Questions) -> dict[str, int]:
    """Which time it was, where questions are asked several times."""
    return {"repeat": item.repeat} if questions.repeats > 1 else {}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
