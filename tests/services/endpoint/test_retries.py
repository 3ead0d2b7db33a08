"""When an endpoint is asked again, and what the deadline leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.judge_server import JudgeServer, Reply, compared
from verl_video_tools.core.errors import EndpointError
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.config import EndpointConfig
from verl_video_tools.services.endpoint import EndpointClient, Unavailable
from verl_video_tools.services.judge import JudgeConfig, LLMJudge

openai = pytest.importorskip("openai", reason="the extra `judge` is not installed")


async def ask(client: EndpointClient) -> str:
    return (await client.complete({"messages": []}, lambda completion: completion)).text


class Busy:
    """Refuses so many judgements once, then judges; each thread of the server calls it."""

    def __init__(self, num_refused: int, retry_after: str, statuses: Sequence[int] = (429,)) -> None:
        self._num_refused, self._statuses, self._retry_after = num_refused, statuses, retry_after
        self._lock = threading.Lock()
        self._refused_at: dict[str, float] = {}
        self.pauses: list[float] = []
        """Seconds after which the refused ones came again."""

    def __call__(self, request: dict[str, Any]) -> Reply:
        with self._lock:
            asked, now = str(request["messages"]), time.monotonic()
            is_refused = asked not in self._refused_at and len(self._refused_at) < self._num_refused
            status = self._statuses[len(self._refused_at) % len(self._statuses)]
            if is_refused:
                self._refused_at[asked] = now
            elif asked in self._refused_at:
                self.pauses.append(now - self._refused_at[asked])
        if is_refused:
            return Reply(b"slow down", status=status, headers=(("Retry-After", self._retry_after),))
        return compared(request)


@pytest.mark.slow
async def test_no_judgement_is_lost_to_a_server_that_says_when_to_come_back() -> None:
    """64 judgements, of which 32 are to come again after a second."""
    busy = Busy(32, "1", (429, 503))
    with JudgeServer(reply=busy) as server:
        async with LLMJudge(JudgeConfig(base_url=server.base_url, deadline_seconds=60)) as judge:
            labels = await asyncio.gather(*(judge.judge("which?", str(i), str(i)) for i in range(64)))
        assert labels == [AnswerLabel.CORRECT] * 64
        assert judge.counters.failures == 0
        # Each of the 32 in flight was refused once, and came back when it was told to.
        assert judge.counters.failed_attempts == 32 and len(server.requests) == 96
        assert len(busy.pauses) == 32 and min(busy.pauses) >= 1.0


async def test_the_deadline_ends_a_pause_and_says_why_there_was_one() -> None:
    with JudgeServer(reply=Busy(100, "60")) as server:
        config = EndpointConfig(base_url=server.base_url, model="any", deadline_seconds=0.5)
        async with EndpointClient(config) as client:
            with pytest.raises(Unavailable, match=r"within 0.5 s; the last attempt failed with: HTTP 429: slow down"):
                await ask(client)


@pytest.mark.parametrize(
    "retry_after", ["Fri, 99 Dec 99999999999 23:59:59 GMT", "nan", "-1", "soon", "Wed, 21 Oct 2015 07:28 GMT"]
)
@pytest.mark.usefixtures("short_backoff")
async def test_an_odd_pause_is_none(retry_after: str) -> None:
    busy = Busy(1, retry_after)
    with JudgeServer(reply=busy) as server:
        async with LLMJudge(JudgeConfig(base_url=server.base_url)) as judge:
            assert await judge.judge("which?", "1", "1") is AnswerLabel.CORRECT
    assert len(busy.pauses) == 1


@pytest.mark.slow
async def test_a_server_that_comes_back_within_the_deadline_costs_no_judgement() -> None:
    """Its connections are refused meanwhile."""
    with JudgeServer() as server:
        port = server.port
    config = JudgeConfig(base_url=server.base_url, deadline_seconds=20.0)
    async with LLMJudge(config) as judge:
        asked = asyncio.create_task(judge.judge("which?", "1", "1"))
        await asyncio.sleep(1.0)
        assert not asked.done()
        with JudgeServer(port=port):
            assert await asked is AnswerLabel.CORRECT
    assert judge.counters.failures == 0


@pytest.mark.usefixtures("short_backoff")
async def test_a_request_that_fails_while_others_are_answered_is_given_up() -> None:
    def reply(request: dict[str, Any]) -> Reply:
        return Reply(b"boom", status=500) if "poison" in request["messages"][1]["content"] else compared(request)

    with JudgeServer(reply=reply) as server:
        async with LLMJudge(JudgeConfig(base_url=server.base_url)) as judge:
            poisoned = asyncio.create_task(judge.judge("poison?", "1", "1"))
            while not poisoned.done():
                await judge.judge("which?", "1", "1")
            assert await poisoned is AnswerLabel.INCORRECT


@pytest.mark.usefixtures("short_backoff")
async def test_an_address_where_nothing_listens_is_told_soon() -> None:
    with JudgeServer() as server:
        pass
    async with EndpointClient(EndpointConfig(base_url=server.base_url)) as client:
        for ask in (client.check_reachable, client.served_models):
            with pytest.raises(EndpointError, match=r"within 0\.3 s; the last attempt failed with: ConnectError"):
                await ask()


async def test_any_reply_shows_that_an_endpoint_is_there() -> None:
    with JudgeServer(models_reply=Reply(b"<html>busy</html>", content_type="text/html")) as server:
        async with EndpointClient(EndpointConfig(base_url=server.base_url)) as client:
            await client.check_reachable()
            server.models_reply = Reply(b"gone", status=404)
            await client.check_reachable()


async def test_the_deadline_ends_a_request_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(*_: Any, **__: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(openai.AsyncOpenAI, "post", post)
    config = EndpointConfig(base_url="http://localhost:1/v1", model="any", deadline_seconds=0.3)
    async with EndpointClient(config) as client:
        replies = await asyncio.gather(*(ask(client) for _ in range(3)), return_exceptions=True)
    assert ["within 0.3 s; it did not reply" in str(reply) for reply in replies] == [True] * 3


@pytest.mark.usefixtures("short_backoff")
async def test_what_nobody_foresaw_is_an_error_of_the_endpoint() -> None:
    def read(_: Any) -> None:
        raise KeyError("gone")

    with JudgeServer() as server:
        async with EndpointClient(EndpointConfig(base_url=server.base_url)) as client:
            with pytest.raises(EndpointError, match="KeyError: 'gone'"):
                await client.complete({"messages": [{"role": "user", "content": CASE}]}, read)


CASE = '{"question": "?", "reference": "a", "answer": "a"}'


@pytest.mark.usefixtures("short_backoff")
async def test_a_busy_address_is_left_for_another() -> None:
    with JudgeServer(reply=Busy(100, "60")) as busy, JudgeServer() as free:
        config = EndpointConfig(base_url=(busy.base_url, free.base_url), model="any", deadline_seconds=30.0)
        async with EndpointClient(config) as client:
            for _ in range(3):
                assert "correct" in await client.complete({"messages": [{"role": "user", "content": CASE}]}, str)
    assert (len(busy.requests), len(free.requests)) == (1, 3), "it is passed over for a while"
