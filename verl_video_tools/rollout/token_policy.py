"""A policy behind verl's inference server, sampled token by token: its turns are what is trained on."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from verl_video_tools.core.reasoning import SpokenTurn, opens_reasoning, take_apart
from verl_video_tools.core.types import Message, Method
from verl_video_tools.rollout.budget import TokenBudget
from verl_video_tools.rollout.policy import AssistantTurn
from verl_video_tools.rollout.sequences import RolloutTokens

_TAIL_TOKENS = 8
"""Of a prompt, enough for the tag that its end may open, however it is tokenised."""


class TokenPolicy:
    """Turns of one rollout, sampled by verl's inference server and kept as tokens.

    Args:
        server: verl's client of the inference server, with its method `generate`.
        tokens: the rollout's sequences; grow with every message and every turn.
        budget: says how many tokens a turn may still take.
        decode: tokens to text, special tokens included.
        sampling_params: verl's, for every turn.
        end_ids: tokens that end a turn.
        with_logprobs: keep the engine's log-probabilities.
    """

    def __init__(
        self,
        method: Method,
        server: Any,
        tokens: RolloutTokens,
        budget: TokenBudget,
        decode: Callable[[Sequence[int]], str],
        sampling_params: Mapping[str, Any],
        mm_processor_kwargs: Mapping[str, Any],
        end_ids: frozenset[int],
        with_logprobs: bool,
    ) -> None:
        self._method = method
        self._server = server
        self._tokens = tokens
        self._budget = budget
        self._decode = decode
        self._sampling_params = sampling_params
        self._mm_processor_kwargs = mm_processor_kwargs
        self._end_ids = end_ids
        self._with_logprobs = with_logprobs
        self._request_id = uuid4().hex
        self.server_fields: dict[str, Any] = {}
        """Oldest and newest policy version that generated a turn."""
        self.generation_seconds = 0.0
        self.own_seconds = 0.0
        """What the policy took, generation included; what a rollout takes beside is its tools' and observations'."""

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn:
        started = time.perf_counter()
        is_observation = bool(self._tokens.current.prompt_ids)
        await asyncio.to_thread(self._tokens.append, messages)
        if is_observation:
            started = time.perf_counter()
        # The template may open a reasoning; the turn's text is then without the tag that began it.
        opened = opens_reasoning(self._decode(self._tokens.current.ids[-_TAIL_TOKENS:]))
        text, truncated = await self._generate()
        self.own_seconds += time.perf_counter() - started
        said = take_apart(text, self._method, opened=True, cut=truncated) if opened else SpokenTurn(text)
        return AssistantTurn(said.text, truncated, said.reasoning)

    async def _generate(self) -> tuple[str, bool]:
        """Sample one turn; returns its text without the end-of-turn token, and whether it was cut by its limit."""
        tokens_left = self._budget.tokens_left()
        max_tokens = max(1, min(tokens_left, self._method.max_turn_tokens or tokens_left))
        params = {**self._sampling_params, "max_tokens": max_tokens}
        if self._method.stop:
            params |= {"stop": list(self._method.stop), "include_stop_str_in_output": True}
        stream = self._tokens.current
        started = time.perf_counter()
        output = await self._server.generate(
            request_id=self._request_id,
            prompt_ids=stream.ids,
            sampling_params=params,
            image_data=stream.pil_images,
            mm_processor_kwargs=dict(self._mm_processor_kwargs) or None,
        )
        self.generation_seconds += time.perf_counter() - started
        token_ids = list(output.token_ids)
        # Not asked for any, the engine gives None, and verl an empty list where it has joined interrupted requests.
        logprobs = list(output.log_probs or ()) if self._with_logprobs else None
        if num_surplus := len(token_ids) - length_to_stop(token_ids, self._method.stop, self._decode):
            del token_ids[-num_surplus:]
            if logprobs is not None:
                del logprobs[-num_surplus:]
        stream.append_turn(token_ids, logprobs)
        _merge_server_fields(self.server_fields, output.extra_fields)
        ended = bool(token_ids) and token_ids[-1] in self._end_ids
        # vLLM reports "stop" and "length" alike through verl, so a cut is recognised by its length.
        text = self._decode(token_ids[:-1] if ended else token_ids)
        stopped = ended or any(string in text for string in self._method.stop)
        return text, not stopped and len(token_ids) >= max_tokens


def length_to_stop(token_ids: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> int:
    """Number of a turn's tokens up to the one that completes its first stop string; all of them if there is none.

    The engine ends a turn there by itself, but for one that was interrupted inside the string, as in asynchronous
    training: verl goes on with a new request, and vLLM looks for stop strings only in what a request generates itself.
    """

    def has_stopped(length: int) -> bool:
        text = decode(token_ids[:length])
        return any(string in text for string in stop)

    if not stop or not has_stopped(len(token_ids) - 1):
        return len(token_ids)
    return bisect_left(range(len(token_ids)), True, key=has_stopped)


def _merge_server_fields(fields: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Keep the oldest and the newest policy version that generated a turn of this rollout."""
    version = update.get("global_steps")
    oldest, newest = update.get("min_global_steps", version), update.get("max_global_steps", version)
    if oldest is not None:
        fields["min_global_steps"] = min(oldest, fields.get("min_global_steps", oldest))
    if newest is not None:
        fields["max_global_steps"] = max(newest, fields.get("max_global_steps", newest))
