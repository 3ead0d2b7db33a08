"""The rate limit: waiting for a turn is queueing, which no deadline counts; one who gives up leaves the turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from verl_video_tools.services.endpoint import EndpointClient, EndpointConfig

openai = pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytest.importorskip("tenacity", reason="the extra `judge` is not installed")

NUM_WORKERS = 64
"""At 100 requests a second the last one waits for its turn for more than twice the deadline."""


@pytest.fixture
def sent_at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each request was sent to an endpoint that replies at once."""
    times: list[float] = []

    async def post(*_: Any, **__: Any) -> dict[str, Any]:
        times.append(asyncio.get_running_loop().time())
        return {}

    monkeypatch.setattr(openai.AsyncOpenAI, "post", post)
    return times


async def ask(client: EndpointClient) -> None:
    async with client.exchange() as exchange:
        await exchange.retried(lambda: exchange.chat_completion({"messages": []}))


def limited() -> EndpointClient:
    return EndpointClient(
        EndpointConfig(
            base_url="http://localhost:1/v1",
            concurrency=NUM_WORKERS,
            requests_per_second=100.0,
            deadline_seconds=0.3,
            max_attempts=1,
        )
    )


async def test_waiting_for_a_turn_does_not_count_against_the_deadline(sent_at: list[float]) -> None:
    async with limited() as client:
        await asyncio.gather(*(ask(client) for _ in range(NUM_WORKERS)))
    assert len(sent_at) == NUM_WORKERS
    assert sent_at[-1] - sent_at[0] >= (NUM_WORKERS - 1) / 100 - 0.01


async def test_those_who_give_up_leave_their_turns_to_others(sent_at: list[float]) -> None:
    async with limited() as client:
        waiting = [asyncio.create_task(ask(client)) for _ in range(NUM_WORKERS)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        before = asyncio.get_running_loop().time()
        await ask(client)
    assert sent_at[-1] - before < 0.3


async def test_the_deadline_holds_once_a_request_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(*_: Any, **__: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(openai.AsyncOpenAI, "post", post)
    async with limited() as client:
        replies = await asyncio.gather(*(ask(client) for _ in range(3)), return_exceptions=True)
    assert ["within 0.3 s; it did not reply" in str(reply) for reply in replies] == [True] * 3
