"""How many seeds a claim needs.

The difference of a seed is simulated as its effect, plus what differs between two runs of unlike luck, plus what chance
does in a sample of held-out videos. Both runs of a pair are taken as independent, though they share a cold start and
the order of questions: that needs more seeds, not fewer.
"""

from __future__ import annotations

import math

import numpy as np

from examples.learning_curve.claims.verdict import MAX_SEEDS, Verdict, decide

RUN_SPREAD = 0.057
"""Standard deviation of held-out accuracy between seeds: of FrameThinker's 77.0, 65.9 and 68.6 % in runs before results
were kept. LongVT's 73.5, 67.6 and 68.1 %, of one seed, have 0.032."""
VIDEO_ERROR = 0.026
"""Standard error of a paired difference over 136 held-out videos: a quarter of the width of such intervals in these
runs."""
WANTED_POWER = 0.8
_REPETITIONS = 4000


def difference_spread(run_spread: float = RUN_SPREAD, video_error: float = VIDEO_ERROR) -> float:
    """Standard deviation of the difference of a seed."""
    return math.sqrt(2 * run_spread**2 + video_error**2)


def chances(
    effect: float, least: float, num_seeds: int, *, spread: float | None = None, bound: float = 0.0
) -> dict[Verdict, float]:
    """How often each verdict is reached.

    Args:
        effect: the true difference.
        spread: standard deviation of a seed's difference; None: `difference_spread()`.
        least, bound: as `decide` takes them.
    """
    deviation = difference_spread() if spread is None else spread
    drawn_RS = np.random.default_rng(num_seeds).normal(effect, deviation, (_REPETITIONS, num_seeds))
    verdicts = [decide(list(row), least, bound=bound) for row in drawn_RS]
    names: tuple[Verdict, ...] = ("supports", "contradicts", "undecided")
    return {name: verdicts.count(name) / _REPETITIONS for name in names}


def seeds_needed(effect: float, least: float, *, spread: float | None = None, bound: float = 0.0) -> int | None:
    """The fewest seeds with which an effect is borne out with `WANTED_POWER`; None: more than `MAX_SEEDS`."""
    for num_seeds in range(2, MAX_SEEDS + 1):
        if chances(effect, least, num_seeds, spread=spread, bound=bound)["supports"] >= WANTED_POWER:
            return num_seeds
    return None
