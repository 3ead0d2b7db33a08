"""The result of an evaluation, computed from its items. It does not depend on their order or on time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.data.formats import Benchmark
from verl_video_tools.evaluation.items import COSTS, Item
from verl_video_tools.evaluation.questions import Questions
from verl_video_tools.evaluation.statistics import Estimate, mean_by_video, share_interval

PUBLISHED = "_published"
"""Suffix of figures by the published extractor."""

Figures = dict[str, Any]
"""Counts and means over some items: `items`, `failed`, `accuracy`, `partial`, `frames`, `visual_tokens`, the
benchmark's metrics, the number of `videos`, 95 % `intervals` of shares and metrics, and the number of answers that are
`unread`: without an option, number or segment. A published extractor adds `accuracy_published`, its mean of groups,
`unread_published`, and `differing`: the number of answers that the two label differently.

Means are over items that did not fail, and means of labels over items with a truth; None without such items. An item
with repeats counts as the mean of its repeats. An interval is None with too few videos.
"""

_INTERVAL_DIGITS = 6
"""Intervals are rounded, so that machines with another order of summation give the same."""


def summarise(questions: Questions, items: Sequence[Item], protocol: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `results.json`.

    Args:
        protocol: what was evaluated and how. The result contains it.
    """
    finished = [item for item in items if not item.flags]
    has_published = protocol.get("extractor") is not None
    return {
        "protocol": dict(protocol),
        "overall": _figures(items, questions.benchmark, has_published, num_faults=len(questions.faults)),
        "groups": {
            name: {value: _figures(members, questions.benchmark, has_published) for value, members in values.items()}
            for name, values in _groups(items, questions.benchmark).items()
        },
        "frames": {
            name: _sum_and_mean(values) or {"sum": 0, "mean": None}
            for name, values in {
                "initial": [item.initial_frames for item in finished],
                "tool": [item.tool_frames for item in finished],
                "total": [item.initial_frames + item.tool_frames for item in finished],
                "executed_calls": [item.executed_calls for item in finished],
                "turns": [item.turns for item in finished],
            }.items()
        },
        "costs": {name: _sum_and_mean([getattr(item, name) for item in finished]) for name in COSTS},
        "calls": _call_figures(finished),
        **({"repeats": _repeats(items, questions.repeats)} if questions.repeats > 1 else {}),
        "graded_by": dict(sorted(Counter(item.graded_by for item in items if item.graded_by).items())),
        "stop_reasons": dict(sorted(Counter(item.stop_reason for item in items).items())),
        "failures": _failures(questions, items),
    }


def _groups(items: Sequence[Item], benchmark: Benchmark | None) -> dict[str, dict[str, list[Item]]]:
    """Items by the name and the value of their groups, in order of appearance.

    Rows from several data sets are also grouped by data set.
    """
    groups: dict[str, dict[str, list[Item]]] = {name: {} for name in (benchmark.groupings if benchmark else ())}
    by_source = benchmark is None and len({item.data_source for item in items}) > 1
    for item in items:
        memberships = {"data_source": [item.data_source], **item.groups} if by_source else item.groups
        for name, members in memberships.items():
            for member in members:
                groups.setdefault(name, {}).setdefault(member, []).append(item)
    return {name: values for name, values in groups.items() if values}


def _figures(items: Sequence[Item], benchmark: Benchmark | None, has_published: bool, num_faults: int = 0) -> Figures:
    answered = _by_item(item for item in items if item.label is not None)
    graded = [item for repeats in answered for item in repeats]
    finished = [item for item in items if not item.flags]
    num_items = len(_by_item(items)) + num_faults
    estimates = _estimates(answered, benchmark, has_published)
    published = {
        f"unread{PUBLISHED}": sum(not item.readable_published for item in graded),
        "differing": sum(item.differs for item in graded),
    }
    return {
        "items": num_items,
        "failed": num_items - len(_by_item(finished)),
        **{name: None if estimate is None else estimate.value for name, estimate in estimates.items()},
        "unread": sum(not item.readable for item in graded),
        **(published if has_published else {}),
        "frames": _mean([item.initial_frames + item.tool_frames for item in finished]),
        "visual_tokens": (_sum_and_mean([item.visual_tokens for item in finished]) or {"mean": None})["mean"],
        "videos": len({item.video for item in graded}),
        "intervals": {name: _interval(estimate) for name, estimate in estimates.items()},
    }


def _estimates(
    answered: Sequence[Sequence[Item]], benchmark: Benchmark | None, has_published: bool
) -> dict[str, Estimate | None]:
    """Shares and metrics with their standard errors. The shares of every result are None without items."""
    shares = {
        "accuracy": [_share(times, "label", AnswerLabel.CORRECT) for times in answered],
        "partial": [_share(times, "label", AnswerLabel.PARTIAL) for times in answered],
    }
    if has_published:
        shares[f"accuracy{PUBLISHED}"] = [_share(times, f"label{PUBLISHED}", AnswerLabel.CORRECT) for times in answered]
    if not answered:
        return dict.fromkeys(shares)
    for name in answered[0][0].metrics:
        shares[name] = [fmean(item.metrics[name] for item in times) for times in answered]
    videos = [times[0].video for times in answered]
    estimates: dict[str, Estimate | None] = {name: mean_by_video(each, videos) for name, each in shares.items()}
    if benchmark is not None and benchmark.group_mean is not None:
        name, grouping = benchmark.group_mean
        groups = [times[0].groups[grouping][0] for times in answered]
        for suffix in ("", PUBLISHED) if has_published else ("",):
            estimates[f"{name}{suffix}"] = mean_by_video(shares[f"accuracy{suffix}"], videos, groups)
    return estimates


def _interval(estimate: Estimate | None) -> list[float] | None:
    interval = None if estimate is None else share_interval(estimate)
    return None if interval is None else [round(bound, _INTERVAL_DIGITS) for bound in interval]


def _by_item(items: Iterable[Item]) -> list[list[Item]]:
    """The repeats of each item."""
    repeats: dict[str, list[Item]] = {}
    for item in items:
        repeats.setdefault(item.uid, []).append(item)
    return list(repeats.values())


def _share(times: Sequence[Item], verdict: str, label: AnswerLabel) -> float:
    return sum(getattr(item, verdict) is label for item in times) / len(times)


def _repeats(items: Sequence[Item], repeats: int) -> dict[str, Any]:
    """Accuracy of each repeat, with mean and standard deviation."""
    by_repeat = [[item for item in items if item.repeat == n and item.label is not None] for n in range(repeats)]
    accuracies = [_share(graded, "label", AnswerLabel.CORRECT) if graded else None for graded in by_repeat]
    numbers = [accuracy for accuracy in accuracies if accuracy is not None]
    spread = stdev(numbers) if len(numbers) > 1 else None
    return {"number": repeats, "accuracy": accuracies, "mean": _mean(numbers), "standard_deviation": spread}


def _call_figures(items: Sequence[Item]) -> dict[str, Any]:
    """Shares of items with an executed call: of all, `by_tool`, and `by_class` of the question (VideoBrain); empty
    without calls."""
    tools = sorted({name for item in items for name in item.tools})
    if not tools:
        return {}
    classes = sorted({str(item.classification) for item in items if item.classification is not None})
    by_class = {name: fmean(bool(item.tools) for item in items if item.classification == name) for name in classes}
    return {
        "share": fmean(bool(item.tools) for item in items),
        "by_tool": {name: fmean(name in item.tools for item in items) for name in tools},
        **({"by_class": by_class} if by_class else {}),
    }


def _failures(questions: Questions, items: Sequence[Item]) -> list[dict[str, Any]]:
    """Failed items in order of the questions, with the number of the repeat if there are several."""
    failures: dict[tuple[int, int], dict[str, Any]] = {
        (number, 0): {"item": f"entry {number}", "flags": ["row_error"], "reason": str(error)}
        for number, error in questions.faults.items()
    }
    for item in items:
        if item.flags:
            # Several rows of a user may have the same `index`, so the place of the row is given, too.
            place = f"row {item.uid}" if item.index is None else f"row {item.uid} (index {item.index})"
            failures[int(item.uid), item.repeat] = {
                "item": place if questions.benchmark is None else item.index,
                **({"repeat": item.repeat} if questions.repeats > 1 else {}),
                "flags": item.flags,
                "reason": item.error,
            }
    return [failures[key] for key in sorted(failures)]


def _sum_and_mean(values: Sequence[float | None]) -> dict[str, float | None] | None:
    """None without values, or if one is unknown."""
    numbers = [value for value in values if value is not None]
    return {"sum": sum(numbers), "mean": fmean(numbers)} if numbers and len(numbers) == len(values) else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
