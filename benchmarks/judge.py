"""256 judgements of 200 ms each, 32 in flight at most: how much longer than the ideal do they take?

Ideal is 256 / 32 * 200 ms = 1.6 s. The server is a process of its own, so that it does not slow the judge down.

Usage: python -m benchmarks.judge
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from verl_video_tools.judge import JudgeConfig, LLMJudge

NUM_JUDGEMENTS = 256
CONCURRENCY = 32
LATENCY_MS = 200


async def measure(base_url: str) -> tuple[float, LLMJudge]:
    """Seconds for all judgements, connecting and asking for the model's name included."""
    async with LLMJudge(JudgeConfig(base_url=base_url, concurrency=CONCURRENCY)) as judge:
        started = time.perf_counter()
        await asyncio.gather(*(judge.judge("which number?", str(i), f"it is {i}") for i in range(NUM_JUDGEMENTS)))
        return time.perf_counter() - started, judge


def main() -> None:
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
