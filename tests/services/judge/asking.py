"""One question, put to a judge once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judge_server import Reply, compared
from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.judge import JudgeConfig, JudgeCounters, LLMJudge

CASE = ("What animal is it?", "a brown dog and a cat", "A brown dog and a cat.")


def in_turn(*replies: Reply) -> Any:
    """Answers with each reply once, then with the honest verdict."""
    left = list(replies)
    return lambda request: left.pop(0) if left else compared(request)


async def judge_once(config: JudgeConfig, answer: str = CASE[2]) -> tuple[AnswerLabel, JudgeCounters]:
    async with LLMJudge(config) as judge:
        return await judge.judge(CASE[0], CASE[1], answer), judge.counters


async def failure(config: JudgeConfig) -> tuple[str, JudgeCounters]:
    async with LLMJudge(config) as judge:
        with pytest.raises(JudgeError) as caught:
            await judge.judge(*CASE)
        return str(caught.value), judge.counters
