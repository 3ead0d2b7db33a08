"""Turns that the engine did not give: no doing of the policy, which is not to be trained against it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.turns.framethinker import answer, get
from tests.verl_plugin.harness import ScriptedServer, Unended, run_loop
from verl_video_tools.core.types import StopReason


@pytest.mark.parametrize("reason", ["error", "aborted", None])
async def test_engine_that_returns_no_token(reason: str | None) -> None:
    """It is no doing of the policy. verl cannot take an empty response, so one masked token stands in."""
    rollout = await run_loop([], server=ScriptedServer([Unended("")], stop_reasons=[reason]))
    assert rollout.trajectory.stop_reason is StopReason.ABORTED and rollout.trajectory.flags == ["aborted"]
    assert f"stop reason {reason!r} after 0 tokens" in (rollout.trajectory.error or "")
    assert (rollout.output.response_mask, rollout.output.response_logprobs) == ([0], [0.0])
    assert len(rollout.images) == 8
    assert len(rollout.output.as_dict()["responses"]) == 1


@pytest.mark.parametrize("reason", ["error", "abort", "aborted"])
@pytest.mark.parametrize("text", ["", "<think>I look</think>"])
async def test_a_request_that_ends_early_in_a_later_turn_is_not_the_policys_turn(text: str, reason: str) -> None:
    """vLLM raises nothing for it and returns the tokens so far: earlier turns, which were good, would be trained
    against."""
    server = ScriptedServer([get("0:03"), Unended(text)], stop_reasons=["completed", reason])
    rollout = await run_loop([], server=server)
    assert rollout.trajectory.flags == ["aborted"] and len(rollout.trajectory.turns) == 1
    assert f"stop reason {reason!r}" in (rollout.trajectory.error or "")


@pytest.mark.parametrize("reason", ["completed", "stop", "length", "repetition", None])
async def test_reasons_of_whole_turns(reason: str | None) -> None:
    rollout = await run_loop([], server=ScriptedServer([answer("B")], stop_reasons=[reason]))
    assert (rollout.trajectory.stop_reason, rollout.trajectory.flags) == (StopReason.ANSWER, [])


async def test_failing_server_is_not_hidden() -> None:
    class DeadServer(ScriptedServer):
        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("engine is gone")

    with pytest.raises(ConnectionError, match="engine is gone"):
        await run_loop([], server=DeadServer([]))
