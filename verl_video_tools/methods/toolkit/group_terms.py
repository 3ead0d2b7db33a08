"""Terms of rewards that compare the rollouts of a group (`Method.score_group`). Pure functions.

Each takes one value per rollout and returns one number per rollout, in the same order, unweighted.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_video_tools.core.types import Trajectory


def uses_tools(trajectory: Trajectory) -> bool:
    """Whether at least one call was executed."""
    return bool(trajectory.executed_calls())


def curiosity_bonus(used_tools: Sequence[bool], threshold: float) -> list[float]:
    """For each rollout that used a tool: `threshold` minus the share of such rollouts in the group, if that is
    positive; otherwise 0.

    After Pixel Reasoner's curiosity reward (arXiv 2505.15966). A policy continues to try tools that do not pay yet, and
    the bonus ends by itself once `threshold` is reached.

    Args:
        threshold: share of rollouts with tools at which the bonus ends, 0 to 1.
    """
    if not used_tools:
        return []
    missing = max(threshold - sum(used_tools) / len(used_tools), 0.0)
    return [missing if used else 0.0 for used in used_tools]


def tool_necessity(used_tools: Sequence[bool], right: Sequence[bool]) -> list[float]:
    """For each right rollout with tools: the share of wrong ones among the rollouts without tools; otherwise 0.

    The value is 0, too, if every rollout used tools, because nothing then shows that they were needed.

    Args:
        right: whether each rollout's answer was right.
    """
    without = [is_right for used, is_right in zip(used_tools, right, strict=True) if not used]
    needed = without.count(False) / len(without) if without else 0.0
    return [needed if used and is_right else 0.0 for used, is_right in zip(used_tools, right, strict=True)]
