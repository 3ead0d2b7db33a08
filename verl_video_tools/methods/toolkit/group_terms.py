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
    """`threshold` less the group's rate of tool use, where that is above 0, for each rollout that used a tool.

    After Pixel Reasoner's curiosity reward (arXiv 2505.15966): it keeps a policy trying tools that do not pay yet, and
    ends by itself once tools are used as often as wanted.

    Args:
        threshold: wanted rate of rollouts with tools, 0 to 1.
    """
    if not used_tools:
        return []
    missing = max(threshold - sum(used_tools) / len(used_tools), 0.0)
    return [missing if used else 0.0 for used in used_tools]


def tool_necessity(used_tools: Sequence[bool], right: Sequence[bool]) -> list[float]:
    """For a right rollout with tools: the share of siblings without tools that were wrong; else 0.

    0 also where every sibling used tools: nothing says that they were needed.

    Args:
        right: whether each rollout's answer was right.
    """
    without = [is_right for used, is_right in zip(used_tools, right, strict=True) if not used]
    needed = without.count(False) / len(without) if without else 0.0
    return [needed if used and is_right else 0.0 for used, is_right in zip(used_tools, right, strict=True)]
