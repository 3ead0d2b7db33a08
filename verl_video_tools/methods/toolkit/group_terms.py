"""Terms of rewards that compare the rollouts of a group (`Method.score_group`). Pure functions.

Each takes one value per rollout and returns one number per rollout, in the same order, unweighted.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_video_tools.core.types import Trajectory
from verl_video_tools.grading.overlap import covered_iou

Spans = Sequence[tuple[float, float]]
"""Segments `[start_seconds, end_seconds]`; they may overlap."""


def uses_tools(trajectory: Trajectory) -> bool:
    """Whether at least one call was executed."""
    return bool(trajectory.executed_calls())


def looked_at_spans(trajectory: Trajectory, margin_seconds: float = 0.0) -> list[tuple[float, float]]:
    """For each executed call with frames, the time from its first frame to its last.

    Args:
        margin_seconds: added at both ends, so that a call of one frame covers something.
    """
    spans = []
    for call in trajectory.executed_calls():
        if times := [shown.timestamp_seconds for frame in call.frames for shown in frame.single_frames]:
            spans.append((min(times) - margin_seconds, max(times) + margin_seconds))
    return spans


def written_characters(trajectory: Trajectory) -> int:
    """Length of all that the policy wrote, native reasoning included."""
    return sum(len(turn.text) + len(turn.reasoning or "") for turn in trajectory.turns)


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


def span_diversity(spans: Sequence[Spans]) -> list[float]:
    """How far a rollout looked elsewhere than its siblings: 1 less the mean IoU with those that looked, 0 to 1.

    0 for a rollout that looked at nothing, and for one whose siblings all did: there is nothing to differ from.

    Args:
        spans: of each rollout (`looked_at_spans`). Spans without length count as nothing.
    """
    looked = [any(end > start for start, end in own) for own in spans]
    result = []
    for number, own in enumerate(spans):
        others = [other for i, other in enumerate(spans) if looked[i] and i != number]
        if not looked[number] or not others:
            result.append(0.0)
        else:
            mean = sum(covered_iou(own, other) for other in others) / len(others)
            result.append(round(1.0 - mean, 9))  # equal looks must be worth the same to the last digit
    return result


def relative_length_penalty(lengths: Sequence[float]) -> list[float]:
    """0 for the shortest rollout of the group, -1 for the longest, linear between; 0 for all where they are equal.

    After the length reward of Kimi k1.5 (arXiv 2501.12599, 2.3.3), without its offset.

    Args:
        lengths: in any unit: tokens, characters, turns, calls.
    """
    if not lengths:
        return []
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    return [-(length - shortest) / (longest - shortest) for length in lengths]


def tool_necessity(used_tools: Sequence[bool], right: Sequence[bool]) -> list[float]:
    """For a right rollout with tools: the share of siblings without tools that were wrong; else 0.

    0 also where every sibling used tools: nothing says that they were needed.

    Args:
        right: whether each rollout's answer was right.
    """
    without = [is_right for used, is_right in zip(used_tools, right, strict=True) if not used]
    needed = without.count(False) / len(without) if without else 0.0
    return [needed if used and is_right else 0.0 for used, is_right in zip(used_tools, right, strict=True)]
