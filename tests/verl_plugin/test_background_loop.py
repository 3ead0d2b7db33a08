"""What finished rollouts run in, beside the loop of those that are still running."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from verl_video_tools.verl_plugin.agent_loop_worker import BackgroundLoop

rollout: ContextVar[str] = ContextVar("rollout")


async def test_the_caller_goes_on_while_a_coroutine_computes() -> None:
    gone_on = threading.Event()

    async def compute() -> tuple[bool, str]:
        return gone_on.wait(timeout=30), threading.current_thread().name  # blocks its loop

    waiting = asyncio.create_task(BackgroundLoop("finished").run(compute()))
    await asyncio.sleep(0)
    gone_on.set()
    assert await waiting == (True, "finished")


async def test_a_coroutine_sees_the_context_of_its_caller() -> None:
    loop = BackgroundLoop("finished")

    async def name() -> str:
        await asyncio.sleep(0)
        return rollout.get()

    async def caller(number: int) -> str:
        rollout.set(f"rollout {number}")
        return await loop.run(name())

    assert await asyncio.gather(*map(caller, range(4))) == [f"rollout {number}" for number in range(4)]


async def test_exceptions_and_cancellations_are_handed_on() -> None:
    loop, started, cancelled = BackgroundLoop("finished"), threading.Event(), threading.Event()

    async def fail() -> None:
        raise ValueError("no such block")

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(ValueError, match="no such block"):
        await loop.run(fail())
    waiting = asyncio.create_task(loop.run(wait()))
    await asyncio.to_thread(started.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(cancelled.wait, 30)
