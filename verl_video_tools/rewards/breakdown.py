"""A rollout's reward as it is recorded, whatever its method."""

from __future__ import annotations

from collections.abc import Mapping

from verl_video_tools.methods import get_method, method_names
from verl_video_tools.types import Method


def reward_info(method: Method, reward: Mapping[str, float], flagged: bool) -> dict[str, float]:
    """The breakdown under the keys that every row of a run shares."""
    components = {component: 0.0 for name in method_names() for component in get_method(name).reward_components}
    return {
        **components,
        **{key: float(value) for key, value in reward.items()},
        "acc": method.acc(reward),
        "flagged": float(flagged),
    }
