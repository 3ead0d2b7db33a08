"""Rollouts that a weight update interrupts, as in asynchronous training: verl's own client joins a turn's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient
from verl.workers.rollout.replica import TokenOutput

from tests.verl_plugin.harness import Rollout, run_loop, tokenizer
from verl_video_tools.core.types import StopReason
from verl_video_tools.rollout.token_policy import length_to_stop

ZOOM = '<think>so</think><video_zoom>{"segment": [4, 6], "fps": 2}</video_zoom>'
RIGHT = "<think>so</think><answer>B</answer>"


def encode(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False))


END = encode("<|im_end|>")
ZOOM_IDS = encode(ZOOM)
TURNS = [ZOOM_IDS + encode(" and whatever else would come") + END, encode(RIGHT) + END]
"""What the policy writes unless the engine stops it."""


@dataclass
class Engine(FullyAsyncLLMServerClient):
    """verl's client for partial rollouts over a scripted engine, which like vLLM looks for stop strings only in what a
    request generates itself."""

    interrupt_after: list[int] = field(default_factory=list)
    """Tokens after which the first requests are interrupted, one by one."""
    gives_logprobs: bool = True
    turns: Sequence[list[int]] = field(default_factory=lambda: TURNS)

    def __post_init__(self) -> None:
        rollout = SimpleNamespace(name="vllm", response_length=4096)
        super().__init__(SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout)))
        self.turn, self.position, self.version = 0, 0, 0
        self.server = SimpleNamespace(generate=SimpleNamespace(remote=self.generate_once))

    async def _acquire_server(self, request_id: str, **_: Any) -> tuple[str, Any]:
        return "server", self.server

    def _release_server(self, server_id: str, request_id: str | None = None) -> None: ...

    async def generate_once(self, *, sampling_params: dict[str, Any], **_: Any) -> TokenOutput:
        left = self.turns[self.turn][self.position :][: sampling_params["max_tokens"]]
        limit = self.interrupt_after.pop(0) if self.interrupt_after else len(left)
        token_ids: list[int] = []
        while len(token_ids) < limit and not any(s in tokenizer().decode(token_ids) for s in sampling_params["stop"]):
            token_ids.append(left[len(token_ids)])
        interrupted = len(token_ids) == limit < len(left)
        logprobs = [-0.001 * (self.position + i + 1) for i in range(len(token_ids))]
        result = TokenOutput(
            token_ids=token_ids,
            log_probs=logprobs if self.gives_logprobs else None,
            stop_reason="aborted" if interrupted else "completed",
            extra_fields={"global_steps": self.version},
        )
        if interrupted:
            self.position, self.version = self.position + len(token_ids), self.version + 1
        else:
            self.turn, self.position = self.turn + 1, 0
        return result


async def rollout(calculate_log_probs: bool = True, **options: Any) -> Rollout:
    engine: Any = Engine(**options)
    return await run_loop(
        [], server=engine, method="videozoomer", rollout_options={"calculate_log_probs": calculate_log_probs}
    )


def trained(rollout: Rollout) -> tuple[Any, ...]:
    return rollout.output.response_ids, rollout.output.response_mask, rollout.output.response_logprobs


@pytest.mark.slow
async def test_an_interruption_changes_nothing_wherever_it_comes() -> None:
    """Above all not inside a stop string: the engine then no longer sees it, and writes on."""
    whole = await rollout()
    assert whole.trajectory.stop_reason is StopReason.ANSWER
    assert [turn.text for turn in whole.trajectory.turns] == [ZOOM, RIGHT]
    places = [0, 1, *range(len(ZOOM_IDS) - len(encode("</video_zoom>")), len(ZOOM_IDS))]
    interrupted = await asyncio.gather(*(rollout(interrupt_after=[place]) for place in places))
    for result in interrupted:
        assert result.trajectory.flags == []
        assert [turn.text for turn in result.trajectory.turns] == [ZOOM, RIGHT]
        assert trained(result) == trained(whole)
        assert [result.output.extra_fields[f"{end}_global_steps"] for end in ("min", "max")] == [0, 1]


@pytest.mark.slow
async def test_a_turn_may_be_interrupted_again() -> None:
    whole = await rollout()
    result = await rollout(interrupt_after=[len(ZOOM_IDS) - 2, 1, 2])
    assert trained(result) == trained(whole)
    assert result.output.extra_fields["max_global_steps"] == 3


async def test_without_log_probabilities_nothing_is_flagged() -> None:
    """verl's client then returns an empty list, where the engine itself returns None."""
    result = await rollout(calculate_log_probs=False, gives_logprobs=False, interrupt_after=[3])
    assert result.trajectory.flags == []
    assert result.output.response_logprobs is None
    assert sum(result.output.response_mask) == len(ZOOM_IDS) + len(TURNS[1])


async def test_log_probabilities_that_were_asked_for_may_not_be_missing() -> None:
    result = await rollout(gives_logprobs=False)
    assert result.trajectory.flags == ["invariant"]
    assert "log-probabilities" in (result.trajectory.error or "")


@pytest.mark.parametrize(
    ("pieces", "stop", "length"),
    [
        (["a", "b"], [], 2),
        (["a", "b"], ["<x>"], 2),
        ([], ["<x>"], 0),
        (["a", "<", "x", ">"], ["<x>"], 4),
        (["a", "<", "x", ">", "b", "<x>"], ["<x>"], 4),
        (["<", "x> and", "more"], ["<x>"], 2),  # what the completing token has beyond the string stays, as in vLLM
        (["a", "<y>", "<x>"], ["<x>", "<y>"], 2),
        (["<x>"], ["<x>"], 1),
    ],
)
def test_length_up_to_the_first_stop_string(pieces: list[str], stop: list[str], length: int) -> None:
    def decode(token_ids: Sequence[int]) -> str:
        return "".join(pieces[i] for i in token_ids)

    assert length_to_stop(range(len(pieces)), stop, decode) == length
