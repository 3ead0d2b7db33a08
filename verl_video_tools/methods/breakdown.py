"""Rewards as a run records them, whatever the method: of one rollout, and of a group once its rollouts are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from verl_video_tools.core.errors import GroupScoreError
from verl_video_tools.core.types import Method, Sample, Trajectory
from verl_video_tools.methods import get_method, method_names


def reward_info(method: Method, reward: Mapping[str, float], sample: Sample | None, flagged: bool) -> dict[str, float]:
    """The breakdown of one rollout, with all components of its method.

    Args:
        sample: the question; None where a flagged rollout's row was not read.
    """
    return {
        **dict.fromkeys(method.reward_components, 0.0),
        **{key: float(value) for key, value in reward.items()},
        "acc": 0.0 if sample is None else method.acc(reward, sample),
        "flagged": float(flagged),
    }


def all_components(configured: Iterable[Method] = ()) -> tuple[str, ...]:
    """The components of all methods, which every row of a run has, because verl stacks a batch's rows.

    Args:
        configured: methods as the run configures them: their components may not be those of their defaults.
    """
    methods = (*map(get_method, method_names()), *configured)
    return tuple(dict.fromkeys(component for method in methods for component in method.reward_components))


def group_rewards(
    method: Method,
    trajectories: Sequence[Trajectory],
    rewards: Sequence[Mapping[str, float]],
    sample: Sample,
) -> list[dict[str, float]]:
    """The breakdown of each rollout with its `group_components`; `score` is the sum of what is paid, `acc` follows.

    A single rollout has nothing to be compared with, and keeps its reward.

    Args:
        method: the run's.
        trajectories: neither flagged nor lost.
        rewards: of each: `score`, `acc` and all `reward_components`.

    Raises:
        GroupScoreError: `score_group` raised, or gave anything but finite numbers under exactly `group_components`.
    """
    if len(trajectories) < 2 or not method.group_components:
        return [dict(reward) for reward in rewards]
    try:
        earned = [_checked(method, components) for components in method.score_group(trajectories, rewards, sample)]
        if len(earned) != len(trajectories):
            raise GroupScoreError(
                f"{type(method).__name__}.score_group gave {len(earned)} results for {len(trajectories)} rollouts; "
                "give one for each, in their order"
            )
        return [_with(method, reward, components, sample) for reward, components in zip(rewards, earned, strict=True)]
    except GroupScoreError:
        raise
    except Exception as error:  # a method's own code: raised further, it would end as a failure that names nothing
        raise GroupScoreError(f"{type(method).__name__}.score_group failed: {error!r}") from error


def _checked(method: Method, components: Mapping[str, float]) -> dict[str, float]:
    if set(components) != set(method.group_components):
        raise GroupScoreError(
            f"{type(method).__name__}.score_group gave {sorted(components)}, and group_components are "
            f"{sorted(method.group_components)}"
        )
    values = {name: float(value) for name, value in components.items()}
    if bad := {name: value for name, value in values.items() if not math.isfinite(value)}:
        raise GroupScoreError(f"{type(method).__name__}.score_group gave {bad}; rewards are finite numbers")
    return values


def _with(
    method: Method, reward: Mapping[str, float], components: Mapping[str, float], sample: Sample
) -> dict[str, float]:
    paid = {name: components.get(name, reward[name]) for name in method.reward_components}
    score = method.paid_score(paid)
    return {"acc": method.acc({"score": score, **paid}, sample), "score": score, **paid}
