"""A rollout's reward as it is recorded, whatever its method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from verl_video_tools.core.types import Method, Sample
from verl_video_tools.methods import get_method, method_names


def reward_info(
    method: Method,
    reward: Mapping[str, float],
    sample: Sample | None,
    flagged: bool,
    configured: Iterable[Method] = (),
) -> dict[str, float]:
    """The breakdown under the keys that every row of a run shares.

    Args:
        sample: the question; None where a flagged rollout's row was not read.
        configured: methods that other rows of the run may name, where the run configures them: their components may
            not be those of their defaults.
    """
    methods = (*map(get_method, method_names()), *configured)
    components = {component: 0.0 for known in methods for component in known.reward_components}
    return {
        **components,
        **{key: float(value) for key, value in reward.items()},
        "acc": 0.0 if sample is None else method.acc(reward, sample),
        "flagged": float(flagged),
    }
