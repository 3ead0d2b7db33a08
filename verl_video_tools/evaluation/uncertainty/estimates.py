"""A figure with its standard error, by leaving out one video at a time (the jackknife by cluster).

Items about one video tend to be right together, so that an error counted by items is too small. The same items in
the same order give the same error in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")

_MOST_BLOCKS = 100
"""A figure that only its own function knows is computed anew for so many blocks of videos at most."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of some items.

    Attributes:
        standard_error: in the figure's unit.
        num_videos: that the items are about.
        effective_videos: the number of videos with equally many items that would say as much, `n**2 / sum(n_v**2)`
            for n_v items of video v (Kish); at most `num_videos`.
    """

    value: float
    standard_error: float
    num_videos: int
    effective_videos: float


def mean_by_video(values: Sequence[float], videos: Sequence[str]) -> Estimate:
    """The mean of all values; `videos` names the video of each, and there are at least two."""
    members, sizes = members_of(videos)
    sums = np.bincount(members, weights=np.asarray(values, dtype=np.float64))
    total, num_items = sums.sum(), sizes.sum()
    return _estimate(total / num_items, (total - sums) / (num_items - sizes), sizes)


def figures_by_video(
    items: Sequence[Item], videos: Sequence[str], figures: Callable[[Sequence[Item]], Mapping[str, float]]
) -> dict[str, Estimate]:
    """Any figures of the items, such as means of groups' means; `videos` names the video of each, at least two.

    Args:
        figures: of any items. Called once for all and once without each video; from 100 videos on, without each of
            100 blocks of them. One that is missing there has no known error (NaN).
    """
    members, sizes = members_of(videos)
    num_blocks = min(len(sizes), _MOST_BLOCKS)
    # Shuffled, as the order of a benchmark's videos may have a rhythm of its own.
    blocks = (np.random.default_rng(_SEED).permutation(len(sizes)) % num_blocks)[members]
    whole = figures(items)
    without = [
        figures([item for item, own in zip(items, blocks, strict=True) if own != block]) for block in range(num_blocks)
    ]
    return {
        name: _estimate(value, np.array([each.get(name, np.nan) for each in without]), sizes)
        for name, value in whole.items()
    }


def members_of(videos: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of each item's video, in order of appearance, and the number of items of each video."""
    numbers: dict[str, int] = {}
    members = np.array([numbers.setdefault(video, len(numbers)) for video in videos], dtype=np.int64)
    return members, np.bincount(members)


def _estimate(value: float, without: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]) -> Estimate:
    """`without` holds the figure without each block of videos, `sizes` the number of items of each video."""
    num_blocks = len(without)
    variance = (num_blocks - 1) / num_blocks * float(np.square(without - value).sum())
    effective = float(sizes.sum()) ** 2 / float(np.square(sizes).sum())
    return Estimate(float(value), variance**0.5, len(sizes), effective)
