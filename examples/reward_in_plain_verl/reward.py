"""Our graders as a reward function of stock verl: any loop, verl's own reward manager and trainer.

reward.custom_reward_function.path=examples/reward_in_plain_verl/reward.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from verl_video_tools.core.types import AnswerLabel, Sample, default_question_type
from verl_video_tools.grading.answers import grade_answer
from verl_video_tools.methods.toolkit.grammar import find_blocks
from verl_video_tools.rewards import temporal_iou
from verl_video_tools.services.judge import JudgeConfig, LLMJudge

WORTH = {AnswerLabel.CORRECT: 1.0, AnswerLabel.PARTIAL: 0.5, AnswerLabel.INCORRECT: 0.0}


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any],
    time_weight: float = 0.5,
    judge_base_url: str | None = None,
    **_: Any,
) -> dict[str, float]:
    """Reward of ``... <time>[4, 8]</time> <answer>B</answer>``: is the answer right, and the evidence where it says?

    Args:
        extra_info: of the row; `question_type`, `options` and `video_segment` as in docs/rows.md, all optional.
        time_weight: what the overlap of `<time>` with the row's `video_segment` is worth.
        judge_base_url: endpoint of a judge for open questions, which fail without one.

    Raises:
        UsageError: an open question, and no judge.
        JudgeError: the judge gave no verdict.
    """
    options = tuple(extra_info.get("options") or ())
    sample = Sample(
        question=str(extra_info.get("question", "")),
        ground_truth=ground_truth,
        video_path="",
        question_type=extra_info.get("question_type") or default_question_type(ground_truth, options),
        options=options,
    )
    answers, times = find_blocks(solution_str, "answer"), find_blocks(solution_str, "time")
    answer = answers[-1].inner.strip() if answers else None
    accuracy = WORTH[await grade_answer(answer, sample, _judge(judge_base_url))]
    truth = extra_info.get("video_segment")
    overlap = temporal_iou(_segment(times[-1].inner), truth) if times and truth is not None else 0.0
    return {"score": accuracy + time_weight * overlap, "acc": float(accuracy == 1.0), "temporal_iou": overlap}


def _segment(text: str) -> tuple[float, float]:
    """Two numbers in brackets; else an empty segment, which overlaps nothing."""
    try:
        start, end = json.loads(text)
        return float(start), float(end)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return 0.0, 0.0


@cache
def _judge(base_url: str | None) -> LLMJudge | None:
    return None if base_url is None else LLMJudge(JudgeConfig(base_url=base_url))
