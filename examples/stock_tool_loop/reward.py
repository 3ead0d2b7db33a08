"""A reward for rollouts of verl's own tool loop on multiple-choice rows: 1 for the right option, else 0.

reward.custom_reward_function.path=examples/stock_tool_loop/reward.py
"""

from __future__ import annotations

from typing import Any

from verl_video_tools.methods.toolkit.grammar import find_blocks
from verl_video_tools.rewards import grade_multiple_choice


def compute_score(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> dict[str, float]:
    """Grade the last `<answer>` block of the decoded response; tool responses have none of their own."""
    answers = find_blocks(solution_str, "answer")
    correct = bool(answers) and grade_multiple_choice(answers[-1].inner, ground_truth)
    return {"score": float(correct), "acc": float(correct)}
