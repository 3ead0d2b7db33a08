"""Which updates of weights a run of stale weights drops."""

from __future__ import annotations


def is_dropped(number: int, stale_from: int) -> bool:
    """Whether an update of weights never reaches the engine.

    The first update of a run brings the weights of step 1, the next those of step 2. The rollouts of step `stale_from`
    are the first ones of older weights than their step's.

    Args:
        number: of the update, from 1 on.
    """
    return number >= stale_from
