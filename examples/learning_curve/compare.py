"""Held-out accuracy of several policies on the same questions, with paired bootstrap intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verl_video_tools.trace.records import read_records

NUM_RESAMPLES = 10_000
DIRECT_KIND = "direct"
"""Questions that the first look answers. All others need another look."""


@dataclass(frozen=True)
class HeldOut:
    """What one policy earned on held-out questions, keyed by the row's index.

    Attributes:
        right: 1.0 for a right answer, else 0.0.
        calls: executed calls.
        kind: of the question.
        video: path of its video; the questions about one video are resampled together.
    """

    right: Mapping[int, float]
    calls: Mapping[int, int]
    kind: Mapping[int, str]
    video: Mapping[int, str]

    def only(self, kinds: Sequence[str]) -> HeldOut:
        """The questions of these kinds."""
        kept = [index for index, kind in self.kind.items() if kind in kinds]
        return HeldOut(*({index: values[index] for index in kept} for values in self._columns()))

    def without(self, kind: str) -> HeldOut:
        """The questions of all other kinds."""
        return self.only(sorted(set(self.kind.values()) - {kind}))

    def accuracy(self) -> float:
        return float(np.mean(list(self.right.values())))

    def calls_per_rollout(self) -> float:
        return float(np.mean(list(self.calls.values())))

    def _columns(self) -> tuple[Mapping, ...]:
        return self.right, self.calls, self.kind, self.video


def read_held_out(path: Path, agent_name: str) -> HeldOut:
    """The rollouts of one method in a file `val_step_*.jsonl`."""
    right, calls, kind, video = {}, {}, {}, {}
    for line in read_records(path):
        if line["agent_name"] != agent_name:
            continue
        row = line["extra_info"]
        index = int(row["index"])
        right[index] = float(line["reward"]["acc"] > 0.0)
        calls[index] = line["trajectory"].counts()["executed_calls"]
        kind[index] = json.loads(row["demo"])["question"]["kind"]
        video[index] = row["video_path"]
    return HeldOut(right, calls, kind, video)


def accuracy_interval(policy: HeldOut, seed: int = 0) -> tuple[float, float]:
    """Bounds of the 95 % interval of the accuracy, videos resampled."""
    return _interval(policy.right, policy.video, seed)


def difference_interval(before: HeldOut, after: HeldOut, seed: int = 0) -> tuple[float, float]:
    """Bounds of the 95 % interval of `after`'s accuracy less `before`'s on the same questions, videos resampled.

    Raises:
        ValueError: the policies answered different questions.
    """
    if before.right.keys() != after.right.keys():
        raise ValueError(
            f"the policies answered different questions: {len(before.right)} and {len(after.right)}, of which "
            f"{len(before.right.keys() & after.right.keys())} are the same"
        )
    gains = {index: after.right[index] - before.right[index] for index in after.right}
    return _interval(gains, after.video, seed)


def _interval(values: Mapping[int, float], video: Mapping[int, str], seed: int) -> tuple[float, float]:
    by_video: dict[str, list[float]] = {}
    for index, value in values.items():
        by_video.setdefault(video[index], []).append(value)
    sums_V = np.array([sum(members) for members in by_video.values()])
    counts_V = np.array([len(members) for members in by_video.values()])
    drawn_RV = np.random.default_rng(seed).integers(0, len(sums_V), (NUM_RESAMPLES, len(sums_V)))
    means_R = sums_V[drawn_RV].sum(axis=1) / counts_V[drawn_RV].sum(axis=1)
    low, high = np.percentile(means_R, [2.5, 97.5])
    return float(low), float(high)
