"""Advantages of a group, by hand: those that count are compared with each other, and with no one else.

GRPO (arXiv 2402.03300, 4.1.2): a rollout's reward less the mean of its group, divided by the group's deviation; without
the division for Dr. GRPO (arXiv 2503.20783).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verl_video_tools.loop_check.checks import Context, Violations, trained_rows
from verl_video_tools.loop_check.records import Rollout, RunSettings

NAME = "advantages"
TOLD = "Advantages are those of the rollouts that count: a lost one trains nothing and does not affect its siblings."
_TOLERANCE = 1e-3
_EPSILON = 1e-6
"""verl's, beside the deviation."""


def expected_advantages(scores: Sequence[float], divides_by_std: bool) -> list[float]:
    """Of rollouts that are compared with each other. Where all have earned the same, there is nothing to learn."""
    values = np.array(scores, dtype=np.float64)
    if len(values) < 2 or np.ptp(values) == 0:
        return [0.0] * len(values)
    centred = values - values.mean()
    result: list[float] = (centred / (values.std(ddof=1) + _EPSILON) if divides_by_std else centred).tolist()
    return result


def group_violations(group: Sequence[Rollout], context: Context) -> Mapping[int, Violations]:
    """What is wrong with the advantages of one group, by the number of the rollout; None where it cannot be told.

    Args:
        group: all rollouts of a question in a step.
    """
    settings = context.settings
    if settings is None or not _applies(settings) or not any(rollout.trained for rollout in group):
        return {rollout.session_id: None for rollout in group}
    training = [rollout for rollout in group if rollout.trained and trained_rows(rollout, context)]
    counting = [rollout for rollout in training if not rollout.is_lost]
    scores = [rollout.trained[max(rollout.trained)].score for rollout in counting]
    expected = dict(
        zip((each.session_id for each in counting), expected_advantages(scores, settings.divides_by_std), strict=True)
    )
    found: dict[int, Violations] = {rollout.session_id: [] for rollout in group}
    for rollout in training:
        if rollout.is_lost:
            found[rollout.session_id] = ["it is lost, and trains"]
            continue
        of_rollout = [each for each in rollout.trained.values() if any(each.response_mask)]
        own, hoped = of_rollout[-1].advantage, expected[rollout.session_id]
        if not abs(own - hoped) <= _TOLERANCE:
            found[rollout.session_id] = [f"the advantage is {own:.4f}, by hand {hoped:.4f}"]
    if any(found[rollout.session_id] for rollout in counting):
        for rollout in group:
            if rollout.is_lost:
                found[rollout.session_id] = [*(found[rollout.session_id] or []), "its siblings' advantages count it"]
    return found


def _applies(settings: RunSettings) -> bool:
    return settings.estimator == "grpo" and not settings.kl_in_reward
