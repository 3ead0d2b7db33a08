"""How often the 95 % intervals of an evaluation hold: models whose accuracy is known, and items clustered by video.

Each video has an accuracy of its own, drawn around the model's (Beta), so that its items are right together. A case is
evaluated anew many times, each time on other videos. Beside ours stands the percentile interval of a plain bootstrap
by video. Of pairs of runs it also tells how often the test calls a difference significant where there is none.

Usage: python -m benchmarks.interval_coverage
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verl_video_tools.evaluation.statistics import (
    Difference,
    Interval,
    mean_by_video,
    paired_difference,
    share_interval,
)
from verl_video_tools.evaluation.tables import markdown_table

NUMS_VIDEOS = (30, 100, 300)
NUM_BOOTSTRAPS = 1000
NUM_EVALUATIONS = 4000
"""Of each case; a quarter where it is slow."""
_SEED = 22

Sizes = Callable[[np.random.Generator, int], npt.NDArray[np.int64]]
"""Numbers of items of so many videos."""


def _equal(num_items: int) -> Sizes:
    return lambda _, num_videos: np.full(num_videos, num_items)


def unbalanced(random: np.random.Generator, num_videos: int) -> npt.NDArray[np.int64]:
    """1 to 20 items, 4 in the mean; most videos have one or two."""
    return np.minimum(20, random.geometric(0.25, num_videos))


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a benchmark.

    Attributes:
        correlation: of two items about one video being right.
    """

    name: str
    sizes: Sizes
    accuracy: float
    correlation: float


CASES = (
    Case("3 items a video, accuracy 0.5", _equal(3), 0.5, 0.3),
    Case("3 items a video, accuracy 0.9", _equal(3), 0.9, 0.3),
    Case("3 items a video, accuracy 0.1", _equal(3), 0.1, 0.3),
    Case("3 items a video, accuracy 0.75, hardly correlated", _equal(3), 0.75, 0.05),
    Case("10 items a video, accuracy 0.75, highly correlated", _equal(10), 0.75, 0.5),
    Case("1 to 20 items a video, accuracy 0.5", unbalanced, 0.5, 0.3),
    Case("1 to 20 items a video, accuracy 0.9", unbalanced, 0.9, 0.3),
)


@dataclass(frozen=True, slots=True)
class Items:
    """One evaluation: which items were right, and the video of each."""

    right: npt.NDArray[np.bool_]
    videos: list[str]


def evaluation(case: Case, num_videos: int, random: np.random.Generator) -> Items:
    sizes = case.sizes(random, num_videos)
    own = np.repeat(_around(case.accuracy, case.correlation, num_videos, random), sizes)
    return Items(random.random(len(own)) < own, [str(video) for video in np.repeat(np.arange(num_videos), sizes)])


def share_covers(case: Case, num_videos: int, num_evaluations: int) -> tuple[float, float]:
    """Shares of the evaluations whose interval holds the accuracy: ours, and the plain bootstrap's."""
    random = np.random.default_rng(_SEED)
    weights = random.multinomial(num_videos, np.full(num_videos, 1 / num_videos), NUM_BOOTSTRAPS)
    ours, plain = [], []
    for _ in range(num_evaluations):
        items = evaluation(case, num_videos, random)
        ours.append(_holds(share_interval(mean_by_video(items.right.tolist(), items.videos)), case.accuracy))
        members = np.array(items.videos, dtype=np.int64)
        drawn = (weights @ np.bincount(members, weights=items.right)) / (weights @ np.bincount(members))
        low, high = np.quantile(drawn, (0.025, 0.975))
        plain.append(_holds((low, high), case.accuracy))
    return float(np.mean(ours)), float(np.mean(plain))


def group_mean_covers(num_videos: int, num_evaluations: int) -> float:
    """The same for the mean of four groups' accuracies, whose sizes and accuracies differ."""
    accuracies, shares = (0.9, 0.7, 0.5, 0.3), (0.5, 0.25, 0.15, 0.1)
    random = np.random.default_rng(_SEED)
    of_videos = np.repeat(np.arange(4), [round(share * num_videos) for share in shares])
    held = []
    for _ in range(num_evaluations):
        own = [_around(accuracies[group], 0.3, 1, random)[0] for group in of_videos]
        videos = [video for video in range(num_videos) for _ in range(3)]
        right = [float(random.random() < own[video]) for video in videos]
        groups = [str(of_videos[video]) for video in videos]
        held.append(
            _holds(share_interval(mean_by_video(right, [*map(str, videos)], groups)), float(np.mean(accuracies)))
        )
    return float(np.mean(held))


def pair(
    gained: float, lost: float, sizes: Sizes, num_videos: int, random: np.random.Generator
) -> tuple[float, Difference]:
    """The true difference of two runs, and what one evaluation says of it.

    Args:
        gained, lost: shares of the first run's wrong items that the second has right, and of its right ones wrong.
    """
    items = evaluation(Case("", sizes, 0.7, 0.3), num_videos, random)
    members = np.array(items.videos, dtype=np.int64)
    flips = random.random(len(members)) < np.where(
        items.right,
        _around(lost, 0.2, num_videos, random)[members],
        _around(gained, 0.2, num_videos, random)[members],
    )
    differences = flips * np.where(items.right, -1.0, 1.0)
    return 0.3 * gained - 0.7 * lost, paired_difference(differences, items.videos)


PAIRS = (
    ("runs alike, 3 items a video", 0.35, 0.15, _equal(3)),
    ("one run better, 3 items a video", 0.5, 0.05, _equal(3)),
    ("one run better, 1 to 20 items a video", 0.5, 0.05, unbalanced),
)


def pair_covers(gained: float, lost: float, sizes: Sizes, num_videos: int, num_evaluations: int) -> tuple[float, float]:
    """Shares of the evaluations whose interval holds the true difference, and whose test is below 5 %."""
    random = np.random.default_rng(_SEED)
    held, significant = [], []
    for _ in range(num_evaluations):
        truth, found = pair(gained, lost, sizes, num_videos, random)
        held.append(_holds(found.interval, truth))
        significant.append(found.p_value is not None and found.p_value < 0.05)
    return float(np.mean(held)), float(np.mean(significant))


def rows(num_evaluations: int) -> Iterator[list[str]]:
    for case in CASES:
        found = [share_covers(case, num_videos, num_evaluations) for num_videos in NUMS_VIDEOS]
        yield [case.name, *(f"{100 * ours:.1f} ({100 * plain:.1f})" for ours, plain in found)]
    of_groups = [group_mean_covers(num_videos, num_evaluations // 4) for num_videos in NUMS_VIDEOS]
    yield ["mean of 4 groups' accuracies, 3 items a video", *(f"{100 * share:.1f}" for share in of_groups)]
    for name, gained, lost, sizes in PAIRS:
        pairs = [pair_covers(gained, lost, sizes, num_videos, num_evaluations // 4) for num_videos in NUMS_VIDEOS]
        yield [f"difference: {name}", *(f"{100 * held:.1f}" for held, _ in pairs)]
        if gained * 0.3 == lost * 0.7:
            yield [f"test below 5 %: {name}", *(f"{100 * significant:.1f}" for _, significant in pairs)]


def _around(mean: float, correlation: float, num_videos: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Shares of videos, whose mean is `mean`; of two items about one of them, so correlated."""
    size = (1 - correlation) / correlation
    return random.beta(mean * size, (1 - mean) * size, num_videos)


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval[0] <= truth <= interval[1]


def main() -> None:
    head = ["of 100 evaluations, so many intervals hold", *(f"{number} videos" for number in NUMS_VIDEOS)]
    print(markdown_table(head, list(rows(NUM_EVALUATIONS)), num_text_columns=1))


if __name__ == "__main__":
    main()
