"""Which runs `learn_all.py` makes, and in which order; committed before they are made."""

from __future__ import annotations

from typing import NamedTuple

METHODS = ("framethinker", "videozoomer", "longvt", "videobrain", "framemind")
COMPARED = ("direct", "compose_temporal")
"""Trained on the same questions: without tools, and a composition."""

BRANCHING, BRANCHED_FROM = "longvt_branching", "longvt"
"""Trained on the same questions as the latter, from a cold start that is made alike, with two rollouts for each first
turn."""


class Planned(NamedTuple):
    """A run: what `run.py` takes."""

    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method}_{self.seed}"


# Seed by seed, so that a schedule that was stopped has whole columns. Seed 0 of questions in space was run before, with
# other settings.
SCHEDULE = (
    *(Planned(method, 11) for method in (*METHODS, *COMPARED)),
    Planned("compose_spatial", 1),
    *(Planned(method, 12) for method in (*METHODS, *COMPARED)),
    Planned("compose_spatial", 2),
    *(Planned(method, 13) for method in (*METHODS, *COMPARED)),
    Planned("compose_spatial", 0),
    *(Planned(BRANCHING, seed) for seed in (11, 12, 13)),
)
