"""What the judge's client costs, and what it loses to a server that is busy or hangs.

256 judgements of 200 ms each, 32 in flight at most: ideal is 256 / 32 * 200 ms = 1.6 s. The server is a process of its
own, so that it does not slow the judge down. Then 64 judgements against a server that answers 429 with `Retry-After: 8`
for its first 8 s, and three steps of 2048 judgements against one that never answers, with a deadline of 5 s.

Usage: python -m benchmarks.judge
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

from tests.judge_server import JudgeServer, Reply, compared, completion
from verl_video_tools.services.judge import JudgeConfig, LLMJudge

NUM_JUDGEMENTS = 256
CONCURRENCY = 32
LATENCY_MS = 200
BUSY_SECONDS = 8


async def measure(base_url: str, num_judgements: int = NUM_JUDGEMENTS) -> tuple[float, LLMJudge]:
    """Seconds for all judgements, connecting and asking for the model's name included."""
    async with LLMJudge(JudgeConfig(base_url=base_url, concurrency=CONCURRENCY)) as judge:
        started = time.perf_counter()
        judgements = (judge.judge("which number?", str(i), f"it is {i}") for i in range(num_judgements))
        await asyncio.gather(*judgements, return_exceptions=True)
        return time.perf_counter() - started, judge


async def lose_to_busy_server() -> str:
    """64 judgements within the default deadline."""
    began: list[float] = []

    def reply(request: dict[str, Any]) -> Reply:
        began.append(time.monotonic())
        is_busy = began[-1] - began[0] < BUSY_SECONDS
        return Reply(b"{}", 429, headers=(("Retry-After", f"{BUSY_SECONDS}"),)) if is_busy else compared(request)

    with JudgeServer(reply=reply) as server:
        seconds, judge = await measure(server.base_url, 64)
    return f"busy for {BUSY_SECONDS} s: {judge.counters.failures} of 64 lost in {seconds:.1f} s"


async def wait_for_hung_server() -> str:
    """Seconds of three steps, all of whose judgements fail."""
    released, seconds = threading.Event(), []
    with JudgeServer(reply=lambda request: completion(str(released.wait(60)))) as server:
        async with LLMJudge(JudgeConfig(base_url=server.base_url, deadline_seconds=5.0)) as judge:
            for step in range(3):
                started = time.perf_counter()
                judgements = (judge.judge(f"step {step}?", str(i), f"it is {i}") for i in range(2048))
                await asyncio.gather(*judgements, return_exceptions=True)
                seconds.append(time.perf_counter() - started)
        released.set()
    return f"hung, deadline 5 s: steps took {', '.join(f'{each:.2f} s' for each in seconds)}"


def main() -> None:
    print(asyncio.run(lose_to_busy_server()))
    print(asyncio.run(wait_for_hung_server()))
    ideal_seconds = NUM_JUDGEMENTS / CONCURRENCY * LATENCY_MS / 1e3
    for bad_rate in (0.0, 0.1):
        command = [sys.executable, "-m", "tests.judge_server", "--latency-ms", str(LATENCY_MS)]
        with subprocess.Popen([*command, "--bad-rate", str(bad_rate)], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                seconds, judge = asyncio.run(measure(server.stdout.readline().split()[-1]))
            finally:
                server.terminate()
        print(
            f"{bad_rate:4.0%} of replies bad: {NUM_JUDGEMENTS} judgements in {seconds:.2f} s, "
            f"{seconds / ideal_seconds:.2f} x the ideal {ideal_seconds:.2f} s "
            f"({judge.counters.failures} without a verdict, {judge.counters.failed_attempts} failed attempts)"
        )


if __name__ == "__main__":
    main()
