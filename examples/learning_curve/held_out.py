"""Held-out rollouts of several policies on the same questions: accuracy, and intervals by paired bootstrap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.records import read_records

NUM_RESAMPLES = 10_000


@dataclass(frozen=True)
class Outcome:
    """What a policy earned on one question.

    Attributes:
        score: the reward.
        accuracy: 1.0 for a right answer, else 0.0.
        executed_calls: how often it looked.
        seconds_per_look: of video between the first and the last frame of a look, on average; None where none showed
            frames.
        row: `extra_info` of the question.
    """

    score: float
    accuracy: float
    executed_calls: int
    seconds_per_look: float | None
    row: Mapping[str, Any]


def read_outcomes(path: Path, method: str) -> dict[int, Outcome]:
    """The rollouts of one method in a file `val_step_*.jsonl`, by index of their row.

    Raises:
        UsageError: there is no such file, a line cannot be read, none is of the method, or two of its rollouts are of
            rows with the same index.
    """
    if not path.is_file():
        raise UsageError(
            f"{path}: no such file of held-out rollouts; a run writes one for each step at which it validates "
            "(trainer.test_freq, trainer.val_before_train): give one that is there, or let the run go on to that step"
        )
    methods: set[str] = set()
    outcomes: dict[int, Outcome] = {}
    for line in read_records(path):
        methods.add(line["agent_name"])
        if line["agent_name"] == method:
            index = int(line["extra_info"]["index"])
            if index in outcomes:
                raise UsageError(
                    f"{path}: two rollouts of {method!r} on rows of index {index}, of which only one could count; give "
                    "held-out rows an index each, and one rollout (rollout.val_kwargs.n=1)"
                )
            outcomes[index] = Outcome(
                score=line["reward"]["score"],
                accuracy=float(line["reward"]["acc"]),
                executed_calls=line["trajectory"].counts()["executed_calls"],
                seconds_per_look=_seconds_per_look(line["trajectory"]),
                row=line["extra_info"],
            )
    if not outcomes:
        found = ", ".join(sorted(methods)) or "nothing"
        raise UsageError(
            f"{path}: no rollout of {method!r} but of {found}; give a file in which its rows were measured"
        )
    return outcomes


def _seconds_per_look(trajectory: Trajectory) -> float | None:
    looks = [call.frames for call in trajectory.executed_calls() if call.frames]
    shown = [[frame.timestamp_seconds for frame in look] for look in looks]
    return float(np.mean([max(times) - min(times) for times in shown])) if shown else None


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval; as text, a share in per cent."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1%} ({self.low:.1%} to {self.high:.1%})"


class Gain(Estimate):
    """A difference of means; as text, one of shares in percentage points."""

    def __str__(self) -> str:
        mean, low, high = (f"{100 * value:+.1f}" for value in (self.mean, self.low, self.high))
        return f"{mean} points ({low} to {high})"


def mean_of(outcomes: Mapping[int, Outcome], field: str = "accuracy") -> Estimate:
    """Mean of a field of the outcomes; whole videos are resampled, since questions about one are alike."""
    return Estimate(*_bootstrap({index: getattr(outcome, field) for index, outcome in outcomes.items()}, outcomes))


def mean_gain(before: Mapping[int, Outcome], after: Mapping[int, Outcome], field: str = "accuracy") -> Gain:
    """Mean of `after` less `before`, question by question; whole videos are resampled.

    Raises:
        ValueError: the policies answered different questions.
    """
    if before.keys() != after.keys():
        raise ValueError(
            f"the policies answered different questions: {len(before)} and {len(after)}, of which "
            f"{len(before.keys() & after.keys())} are the same"
        )
    gains = {index: getattr(after[index], field) - getattr(before[index], field) for index in after}
    return Gain(*_bootstrap(gains, after))


def _bootstrap(values: Mapping[int, float], outcomes: Mapping[int, Outcome]) -> tuple[float, float, float]:
    """Mean, and the ends of its interval."""
    if not values:
        raise ValueError("no outcome to take the mean of")
    by_video: dict[str, list[float]] = {}
    for index, value in values.items():
        by_video.setdefault(outcomes[index].row["video_path"], []).append(value)
    sums_V = np.array([sum(members) for members in by_video.values()])
    counts_V = np.array([len(members) for members in by_video.values()])
    drawn_RV = np.random.default_rng(0).integers(0, len(sums_V), (NUM_RESAMPLES, len(sums_V)))
    low, high = np.percentile(sums_V[drawn_RV].sum(axis=1) / counts_V[drawn_RV].sum(axis=1), [2.5, 97.5])
    return float(np.mean(list(values.values()))), float(low), float(high)
