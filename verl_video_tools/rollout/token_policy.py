"""A policy behind verl's inference server, sampled token by token: its turns are what is trained on."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_video_tools.core.errors import PolicyError
from verl_video_tools.core.reasoning import ParsedCompletion, opens_reasoning, split_reasoning
from verl_video_tools.core.types import ImagePart, Message, Method
from verl_video_tools.rollout.policy import AssistantTurn, until_stop
from verl_video_tools.rollout.tokens import RolloutTokens, TokenBudget, TokenStream

_ENGINE_ABORT_REASONS = frozenset({"error", "abort", "aborted"})
"""Stop reasons of verl's servers for which the policy did nothing. vLLM raises nothing for a request that fails inside
the engine, and gives what there is."""
_TAIL_TOKENS = 8
"""Of a prompt, enough for the tag that its end may open, however it is tokenised."""


@dataclass
class TokenPolicy:
    """Turns of one rollout, sampled by verl's inference server and kept as tokens."""

    method: Method
    server: Any
    """verl's client of the inference server, with its method `generate`."""
    tokens: RolloutTokens
    """The rollout's sequences; grow with every message and every turn."""
    budget: TokenBudget
    """Says how many tokens a turn may still take."""
    decode: Callable[[Sequence[int]], str]
    """Tokens to text, special tokens included."""
    request_id: str
    """Of all requests of the rollout; by it the server's router knows that they belong together."""
    send_images: Callable[[Sequence[ImagePart]], Awaitable[list[Any]]]
    """Makes of a sequence's images what the server takes as its `image_data`."""
    sampling_params: Mapping[str, Any]
    """verl's, for every turn."""
    mm_processor_kwargs: Mapping[str, Any]
    end_ids: frozenset[int]
    """Tokens that end a turn."""
    with_logprobs: bool
    """Keep the engine's log-probabilities."""

    num_sampled_tokens: int = 0
    """All that the engine generated for this rollout."""
    server_fields: dict[str, Any] = field(default_factory=dict)
    """Oldest and newest policy version that generated a turn."""
    num_cached_tokens: int | None = None
    """Of the first turn's prompt, those that the engine found in its prefix cache; None if it does not tell."""
    _has_turned: bool = False
    generation_seconds: float = 0.0
    policy_seconds: float = 0.0
    """What the policy took, generation included; what a rollout takes beside is its tools' and observations'."""

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn:
        started = time.perf_counter()
        is_observation = bool(self.tokens.current.prompt_ids)
        await asyncio.to_thread(self.tokens.append, messages)
        if is_observation:
            started = time.perf_counter()
        turn = await self._sampled_turn(self.tokens.current, self.budget.tokens_left())
        self.tokens.end_turn(turn.text)
        self.policy_seconds += time.perf_counter() - started
        return turn

    async def detached(self, messages: Sequence[Message]) -> AssistantTurn | None:
        """Sampled in a sequence that is thrown away: nothing of it is trained on."""
        started = time.perf_counter()
        stream = TokenStream(self.tokens.counter)
        tokens_left = await asyncio.to_thread(self.budget.tokens_detached, messages)
        if not tokens_left:
            return None
        await asyncio.to_thread(stream.start, messages)
        turn = await self._sampled_turn(stream, tokens_left)
        self.policy_seconds += time.perf_counter() - started
        return turn

    async def _sampled_turn(self, stream: TokenStream, tokens_left: int) -> AssistantTurn:
        # The template may open a reasoning; the turn's text is then without the tag that began it.
        opened = opens_reasoning(self.decode(stream.ids[-_TAIL_TOKENS:]))
        text, truncated = await self._generate(stream, tokens_left)
        parsed = split_reasoning(text, self.method, opened=True, cut=truncated) if opened else ParsedCompletion(text)
        return AssistantTurn(parsed.text, truncated, parsed.reasoning)

    async def _generate(self, stream: TokenStream, tokens_left: int) -> tuple[str, bool]:
        """Sample one turn; returns its text without what follows its end, and whether it was cut by its limit.

        Raises:
            PolicyError: the engine gave no token, or ended the request for a reason of its own.
        """
        max_tokens = max(1, min(tokens_left, self.method.max_turn_tokens or tokens_left))
        params = {**self.sampling_params, "max_tokens": max_tokens}
        if self.method.stop:
            params |= {"stop": list(self.method.stop), "include_stop_str_in_output": True}
        images = await self.send_images(stream.images)
        started = time.perf_counter()
        output = await self.server.generate(
            request_id=self.request_id,
            prompt_ids=stream.ids,
            sampling_params=params,
            image_data=images,
            mm_processor_kwargs=dict(self.mm_processor_kwargs) or None,
        )
        self.generation_seconds += time.perf_counter() - started
        token_ids = list(output.token_ids)
        if not token_ids or output.stop_reason in _ENGINE_ABORT_REASONS:
            reason = f"stop reason {output.stop_reason!r} after {len(token_ids)} tokens"
            raise PolicyError(f"the inference engine did not finish the turn: {reason}; its log may say why")
        # Unrequested ones are None from the engine, and an empty list where verl has joined interrupted requests.
        logprobs = list(output.log_probs or ()) if self.with_logprobs else None
        if num_surplus := len(token_ids) - length_to_stop(token_ids, self.method.stop, self.decode):
            del token_ids[-num_surplus:]
            if logprobs is not None:
                del logprobs[-num_surplus:]
        stream.append_turn(token_ids, logprobs)
        self.num_sampled_tokens += len(token_ids)
        if not self._has_turned:
            self._has_turned, self.num_cached_tokens = True, output.extra_fields.get("num_cached_tokens")
        _merge_server_fields(self.server_fields, output.extra_fields)
        ended = bool(token_ids) and token_ids[-1] in self.end_ids
        # vLLM reports "stop" and "length" alike through verl, so a cut is recognised by its length.
        text = until_stop(self.decode(token_ids[:-1] if ended else token_ids), self.method.stop)
        stopped = ended or text.endswith(self.method.stop)
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
