"""Which runs `learn_all.py` makes, and in which order; committed before they are made."""

from __future__ import annotations

from typing import NamedTuple

METHODS = ("framethinker", "videozoomer", "longvt", "videobrain", "framemind")
COMPARED = ("direct", "compose_temporal")
"""Trained on the same questions: without tools, and a composition."""

SHARED_TURNS, COMPARED_WITH = "longvt_branching", "longvt"
"""The former was trained as the latter, but every two rollouts of a question shared their first turn."""
LAST_COMMIT = "983c6c5a"
"""The last commit with code for shared turns."""


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
)
RECORDED = tuple(Planned(SHARED_TURNS, seed) for seed in (11, 12, 13))
"""Runs that are shown from their recorded results, since the package no longer has the code."""
