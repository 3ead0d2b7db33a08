"""Nobody waits for a judge that is known to be down: what a hung one costs, and how it comes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.judge_server import MODEL, JudgeServer, Reply, compared
from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.judge import JudgeConfig, LLMJudge

pytest.importorskip("openai", reason="the extra `judge` is not installed")

DEADLINE_SECONDS = 2.0
"""Long beside what the machine needs for the judgements themselves, however busy it is."""
NUM_JUDGEMENTS = 64


class HangingServer(JudgeServer):
    """Takes requests and does not answer while it hangs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hangs = True
        self._released = threading.Event()
        self.reply = self._hang

    def _hang(self, request: dict[str, Any]) -> Reply:
        if self.hangs:
            self._released.wait(60)
        return compared(request)

    def kill(self) -> None:
        self._released.set()
        super().kill()


@pytest.fixture
def server() -> Iterator[HangingServer]:
    with HangingServer() as server:
        yield server


async def step(judge: LLMJudge, number: int, num_judgements: int = NUM_JUDGEMENTS) -> tuple[float, Counter[str]]:
    """Judgements as those of a training step: seconds, and what became of them."""
    began = time.monotonic()
    judgements = (judge.judge(f"step {number}?", str(i), str(i)) for i in range(num_judgements))
    results = await asyncio.gather(*judgements, return_exceptions=True)
    kinds = Counter("failed" if isinstance(result, JudgeError) else str(result) for result in results)
    return time.monotonic() - began, kinds


async def turns_of_the_loop(number: int) -> None:
    """Let tasks run that have something to do: what waits for a reply, a timer or a thread is not done by it."""
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 32])
async def test_a_hung_judge_costs_one_deadline_once(server: HangingServer, concurrency: int) -> None:
    config = JudgeConfig(
        base_url=server.base_url, model=MODEL, concurrency=concurrency, deadline_seconds=DEADLINE_SECONDS
    )
    async with LLMJudge(config) as judge:
        seconds, found = await step(judge, 1)
        assert found == {"failed": NUM_JUDGEMENTS}
        assert seconds >= DEADLINE_SECONDS
        for number in (2, 3):
            judgements = asyncio.create_task(step(judge, number))
            await turns_of_the_loop(100)
            assert judgements.done(), "a judgement waits, although the judge is known to be down"
            assert judgements.result()[1] == {"failed": NUM_JUDGEMENTS}
        assert len(server.requests) == concurrency  # so that no judgement waited for one that hung before it
        with pytest.raises(JudgeError, match=r"not asked: the judge counts as down .* within 2 s; it did not reply"):
            await judge.judge("why?", "1", "2")


async def test_a_judge_that_is_back_is_asked_again(server: HangingServer) -> None:
    config = JudgeConfig(base_url=server.base_url, deadline_seconds=DEADLINE_SECONDS, concurrency=4)
    async with LLMJudge(config) as judge:
        await step(judge, 1)
        await step(judge, 2, 8)
        server.hangs = False
        num_asked = len(server.requests)
        deadline = time.monotonic() + 20
        while (found := (await step(judge, 3, 1))[1]) == {"failed": 1} and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert found == {AnswerLabel.CORRECT: 1}
        assert len(server.requests) <= num_asked + 3  # probes come one at a time
        assert (await step(judge, 4, 64))[1] == {AnswerLabel.CORRECT: 64}


@pytest.mark.slow
async def test_a_judge_that_answers_others_is_not_down(server: HangingServer) -> None:
    """One question that hangs fails alone."""

    def reply(request: dict[str, Any]) -> Reply:
        return server._hang(request) if "poison" in request["messages"][1]["content"] else compared(request)

    server.reply = reply
    async with LLMJudge(JudgeConfig(base_url=server.base_url, deadline_seconds=DEADLINE_SECONDS)) as judge:
        poisoned = asyncio.create_task(judge.judge("poison?", "1", "1"))
        while not poisoned.done():
            assert await judge.judge("which?", "1", "1") is AnswerLabel.CORRECT
            await asyncio.sleep(0.05)
        with pytest.raises(JudgeError, match="within 2 s"):
            await poisoned
        assert await judge.judge("which?", "2", "2") is AnswerLabel.CORRECT


async def test_a_kept_verdict_needs_no_judge(server: HangingServer, tmp_path: Any) -> None:
    config = JudgeConfig(
        base_url=server.base_url, model=MODEL, deadline_seconds=DEADLINE_SECONDS, cache_dir=str(tmp_path)
    )
    async with LLMJudge(config) as judge:
        server.hangs = False
        await judge.judge("kept?", "1", "1")
        server.hangs = True
        assert (await step(judge, 1, 8))[1] == {"failed": 8}
        assert await judge.judge("kept?", "1", "1") is AnswerLabel.CORRECT
