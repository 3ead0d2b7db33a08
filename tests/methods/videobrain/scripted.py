"""Rollouts of VideoBrain under scripted policies, on a question of three options."""

from typing import Any

import pytest

from tests.methods.doubles import ScoringRetriever
from tests.turns.videobrain import answer, think, uniform
from verl_video_tools.core.types import Sample, Trajectory
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method

QUESTION = "What happens?\nA. nothing\nB. a goal\nC. a foul"
RIGHT, RIGHT_WITH_A_CALL = [answer()], [uniform(0, 100), answer()]
WRONG, WRONG_WITH_A_CALL = [answer("C")], [uniform(0, 100), answer("C")]
BROKEN = think('<tool_call>{"name": "uniform_sample", </tool_call>')
LEGACY = think('<tool_call>{"action": "choose_frames", "frame_range": [0, 100]}</tool_call>')
COMPATS = pytest.mark.parametrize("compat", ["strict", "reference"])


async def run(
    video: str, turns: list[str], compat: str = "strict", classification: str | None = "a", **fields: Any
) -> tuple[Trajectory, dict[str, float]]:
    method = get_method("videobrain", compat=compat, **fields)
    sample = Sample(QUESTION, "B", video, "mc", extra_info={"classification": classification})
    trajectory = await execute(method, sample, turns, ScoringRetriever())
    return trajectory, await method.score(trajectory, sample)
