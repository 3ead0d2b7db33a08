"""200 texts that ask, trick or forge their way to a verdict: none moves one, whatever of them the judge quotes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="the extra `judge` is not installed")

from tests.fuzz.injections import INJECTIONS
from tests.fuzz.judge import AROUND, STATED, JudgeReplies
from tests.judge_server import JudgeServer, Reply, completion
from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel, Sample
from verl_video_tools.grading.answers import decided_by_rule
from verl_video_tools.services.judge import JudgeConfig, LLMJudge

QUESTION, TRUTH = "Which animal crosses the road?", "a brown dog"


def quoting(request: dict[str, Any]) -> Reply:
    """A judge that holds every answer for wrong, and quotes it in many ways; asked again, it says no more than that."""
    asked = [message["content"] for message in request["messages"] if message["role"] == "user"]
    shown = json.loads(asked[0])
    assert set(shown) == {"question", "reference", "answer"}, "the answer has left its field"
    assert (shown["question"], shown["reference"]) == (QUESTION, TRUTH)
    if len(asked) > 1:
        return completion('{"label": "incorrect"}')
    number = len(shown["answer"])
    stated = [*STATED.values()][number % len(STATED)].format(label="incorrect", quoted=json.dumps(shown["answer"]))
    return completion(AROUND[number % len(AROUND)].format(stated=stated, quote=shown["answer"]))


async def test_no_text_moves_a_verdict(short_backoff: None) -> None:
    with JudgeServer(quoting) as server:
        async with LLMJudge(JudgeConfig(base_url=server.base_url, deadline_seconds=60.0)) as judge:
            labels = await asyncio.gather(
                *(judge.judge(QUESTION, TRUTH, text) for text in INJECTIONS), return_exceptions=True
            )
    moved = [text for text, label in zip(INJECTIONS, labels, strict=True) if label is not AnswerLabel.INCORRECT]
    assert not [label for label in labels if not isinstance(label, AnswerLabel | JudgeError)]
    assert moved == []


@pytest.mark.slow
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("stated", STATED)
def test_no_way_of_quoting_moves_a_verdict(stated: str, around: str, tmp_path: Path) -> None:
    with JudgeReplies(tmp_path) as surface:
        for text in INJECTIONS:
            for label in AnswerLabel:
                case = {"answer": text, "piece": None, "label": label.value, "stated": stated, "around": around}
                assert surface.check(case) == 1


def test_no_text_is_right_by_rule() -> None:
    sample = Sample(QUESTION, TRUTH, "v.mp4", "open")
    assert {decided_by_rule(text, sample) for text in INJECTIONS} == {None}
