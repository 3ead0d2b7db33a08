"""The result of an evaluation, from its recorded rollouts: nothing in it depends on their order or on time.

Beside `results.json` stand `timing.json`, and the file to hand in where a benchmark keeps its truths.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean, quantiles, stdev
from typing import Any

from verl_video_tools.core.grading import decided_by_rule, is_readable
from verl_video_tools.core.sample import read_clip
from verl_video_tools.core.trajectory import JUDGE_FLAG
from verl_video_tools.core.types import AnswerLabel, Sample, Trajectory
from verl_video_tools.data.extractors import Extractor
from verl_video_tools.data.formats import Benchmark, GradedItem, Prediction, Submission
from verl_video_tools.data.generation.record import Record
from verl_video_tools.evaluation.items import COSTS, AskedItem
from verl_video_tools.evaluation.questions import Questions
from verl_video_tools.evaluation.statistics import (
    MIN_VIDEOS,
    Interval,
    figures_by_video,
    mean_by_video,
    plain_interval,
    share_interval,
)

PUBLISHED = "_published"
"""Suffix of figures by the published verdicts."""

Figures = dict[str, Any]
"""Counts and means over some items: `items`, `failed`, `accuracy`, `partial`, `frames`, `visual_tokens`, the
benchmark's metrics, the number of `videos`, 95 % `intervals` of accuracy, partial and metrics, and how many answers are
`unreadable`: have no option, number or segment. With a published extractor also `accuracy_published`, the metrics by
its verdicts, `unreadable_published`, and `differing`: how many answers the two judge differently.

Means run over the items that did not fail, those of verdicts over the ones with a truth; None where there are none. An
item that was asked several times counts as the mean of those times. An interval is None where there are too few videos
for one.
"""

_INTERVAL_DIGITS = 6
"""Intervals are rounded, so that machines which add up in another order give the same."""


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
    answered = [item.record for item in items if not item.is_failed]
    return {
        "protocol": dict(protocol),
        "overall": _figures(items, questions.benchmark, extractor, num_faults=len(questions.faults)),
        "groups": {
            name: {value: _figures(members, questions.benchmark, extractor) for value, members in values.items()}
            for name, values in groups.items()
        },
        "frames": _frames(items),
        "costs": _costs(items),
        "calls": call_figures(
            [record["trajectory"] for record in answered],
            [record["extra_info"].get("classification") for record in answered],
        ),
        **({"repeats": _repeats(items, questions.repeats)} if questions.repeats > 1 else {}),
        "graded_by": _graded_by(items, questions.benchmark),
        "stop_reasons": dict(sorted(Counter(str(item.record["trajectory"].stop_reason) for item in items).items())),
        "failures": _failures(questions, items),
    }


def timing(records: Sequence[Record], concurrency: int) -> dict[str, Any]:
    """The content of `timing.json`: seconds of the rollouts that did not fail, None where there are none.

    Args:
        concurrency: rollouts under way at a time; what one waits for the endpoint's work on the others counts.
    """
    seconds = [float(record["seconds"]) for record in records]
    if not seconds:
        return {"concurrency": concurrency, "rollouts": 0, "seconds": None}
    percentiles = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else seconds * 19
    figures = {"mean": fmean(seconds), "median": percentiles[9], "p95": percentiles[18], "sum": sum(seconds)}
    rounded = {name: round(value, 3) for name, value in figures.items()}
    return {"concurrency": concurrency, "rollouts": len(seconds), "seconds": rounded}


def submission_of(questions: Questions, records: Iterable[Record]) -> Submission | None:
    """The file of a benchmark that is not graded here (`Benchmark.submission`); None for any other.

    A question that was asked several times is handed in as it was answered the first time.

    Args:
        records: a record for each time that a question was asked. That of an item that failed has no answer.
    """
    if questions.benchmark is None or questions.benchmark.is_graded:
        return None
    answers = {str(record["uid"]): record["trajectory"] for record in records if int(record["session_id"]) == 0}
    predictions = []
    for task in (task for task in questions.tasks if task.session_id == 0):
        trajectory = answers.get(task.uid)
        answer = None if trajectory is None or trajectory.flags else trajectory.answer
        predictions.append(Prediction(Sample.from_row(task.row), answer))
    return questions.benchmark.submission(predictions)


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
    videos = [times[0].video for times in answered]
    ours = [[item.graded for item in times] for times in answered]
    graded = [item for times in ours for item in times if item is not None]
    shares = {
        name: [_share(times, label) for times in ours]
        for name, label in (("accuracy", AnswerLabel.CORRECT), ("partial", AnswerLabel.PARTIAL))
    }
    metrics, intervals = mean_metrics(benchmark, graded), metric_intervals(graded, benchmark)
    counts: dict[str, int] = {"unreadable": sum(not is_readable(item.answer, item.sample) for item in graded)}
    if extractor is not None:
        theirs = [[item.published for item in times] for times in answered]
        published = [item for times in theirs for item in times if item is not None]
        shares[f"accuracy{PUBLISHED}"] = [_share(times, AnswerLabel.CORRECT) for times in theirs]
        metrics |= {f"{name}{PUBLISHED}": value for name, value in mean_metrics(benchmark, published).items()}
        intervals |= {f"{name}{PUBLISHED}": each for name, each in metric_intervals(published, benchmark).items()}
        counts[f"unreadable{PUBLISHED}"] = sum(item.answer is None for item in published)
        counts["differing"] = sum(item.differs for item in items)
    num_items = len(_by_item(items)) + num_faults
    visual_tokens = _costs(items)["visual_tokens"]
    return {
        "items": num_items,
        "failed": num_items - len(_by_item([item for item in items if not item.is_failed])),
        **{name: _mean(values) for name, values in shares.items()},
        **counts,
        "frames": _frames(items)["total"]["mean"],
        "visual_tokens": None if visual_tokens is None else visual_tokens["mean"],
        **metrics,
        "videos": len(set(videos)),
        "intervals": {**share_intervals(shares, videos), **intervals},
    }


def mean_metrics(benchmark: Benchmark | None, items: Sequence[GradedItem]) -> dict[str, float]:
    """The benchmark's metrics of each time that the items were asked, and of these the mean; none without items or a
    benchmark. Times are kept apart, as a metric may join items."""
    times: dict[int, list[GradedItem]] = {}
    for item in items:
        times.setdefault(item.repeat, []).append(item)
    if benchmark is None or not times:
        return {}
    found = [benchmark.metrics(each) for each in times.values()]
    means = {name: fmean(metrics[name] for metrics in found) for name in found[0]}
    return {name: mean for name, mean in means.items() if not math.isnan(mean)}


def share_intervals(values: Mapping[str, Sequence[float]], videos: Sequence[str]) -> dict[str, list[float] | None]:
    """Of the means of values between 0 and 1, by name of the figure; `videos` names the video of each value."""
    if len(set(videos)) < MIN_VIDEOS:
        return dict.fromkeys(values)
    return {name: _rounded(share_interval(mean_by_video(each, videos))) for name, each in values.items()}


def metric_intervals(items: Sequence[GradedItem], benchmark: Benchmark | None) -> dict[str, list[float] | None]:
    """Of the benchmark's own metrics."""
    if benchmark is None or not items:
        return {}
    videos = [read_clip(item.sample.media or item.sample.question).file for item in items]
    if len(set(videos)) < MIN_VIDEOS:
        return dict.fromkeys(mean_metrics(benchmark, items))
    found = figures_by_video(items, videos, partial(mean_metrics, benchmark))
    return {
        name: _rounded(share_interval(estimate) if 0 <= estimate.value <= 1 else plain_interval(estimate))
        for name, estimate in found.items()
    }


def _rounded(interval: Interval | None) -> list[float] | None:
    if interval is None or any(map(math.isnan, interval)):
        return None
    return [round(bound, _INTERVAL_DIGITS) for bound in interval]


def _by_item(items: Sequence[AskedItem]) -> list[list[AskedItem]]:
    """The times that each item was asked."""
    times: dict[str, list[AskedItem]] = {}
    for item in items:
        times.setdefault(item.uid, []).append(item)
    return list(times.values())


def _share(times: Sequence[GradedItem | None], label: AnswerLabel) -> float:
    return sum(item is not None and item.label is label for item in times) / len(times)


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


def _costs(items: Sequence[AskedItem]) -> dict[str, dict[str, float] | None]:
    """Sum and mean of each of the `COSTS` over the items that did not fail; None where the cost of one is unknown."""
    totals: dict[str, dict[str, float] | None] = {}
    for name in COSTS:
        costs = [item.costs[name] for item in items if not item.is_failed]
        known = [cost for cost in costs if cost is not None]
        is_known = bool(known) and len(known) == len(costs)
        totals[name] = {"sum": sum(known), "mean": fmean(known)} if is_known else None
    return totals


def call_figures(trajectories: Sequence[Trajectory], classes: Sequence[str | None]) -> dict[str, Any]:
    """Shares of rollouts with an executed call: of all, `by_tool`, and `by_class` of the question; empty without calls.

    Args:
        classes: of the question of each rollout (`extra_info.classification`, VideoBrain's); None where it has none.
    """
    tools = [{call.name for call in trajectory.executed_calls()} for trajectory in trajectories]
    if not any(tools):
        return {}
    by_class: dict[str, list[bool]] = {}
    for names, of_class in zip(tools, classes, strict=True):
        if of_class is not None:
            by_class.setdefault(str(of_class), []).append(bool(names))
    by_tool = {name: fmean(name in names for names in tools) for name in sorted(set.union(*tools))}
    shares_by_class = {name: fmean(by_class[name]) for name in sorted(by_class)}
    return {
        "share": fmean(map(bool, tools)),
        "by_tool": by_tool,
        **({"by_class": shares_by_class} if by_class else {}),
    }


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
