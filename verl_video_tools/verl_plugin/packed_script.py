"""Recorded turns, and what they are shown when they are run again, as one training sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from verl_video_tools.core.reasoning import opens_reasoning, with_reasoning
from verl_video_tools.core.types import Message
from verl_video_tools.rollout.policy import AssistantTurn
from verl_video_tools.rollout.tokens import TokenStream

_TAIL_TOKENS = 8
"""Of a prompt, enough for the tag of a reasoning that its end may open."""


class PackedSequence:
    """A training sequence in the making.

    Args:
        stop: stop strings of the method; a turn that ends with one has no end-of-turn token.
    """

    def __init__(self, stream: TokenStream, tokenizer: Any, end_of_turn_id: int, stop: tuple[str, ...]) -> None:
        self.stream = stream
        self._tokenizer = tokenizer
        self._end_of_turn_id = end_of_turn_id
        self._stop = stop

    def append_messages(self, messages: Sequence[Message]) -> None:
        """The prompt, and from then on observations."""
        if self.stream.prompt_ids:
            self.stream.append_observation(messages[0].content, self._end_of_turn_id)
        else:
            self.stream.start(messages)

    def append_turn(self, text: str, reasoning: str | None = None, *, trained: bool = True) -> None:
        """An assistant turn as the policy should sample it: its end token is learned, unless a stop string ends it.

        Args:
            reasoning: native reasoning before it, which goes on where the chat template has opened one.
            trained: the loss is on it.
        """
        opened = opens_reasoning(self._tokenizer.decode(self.stream.ids[-_TAIL_TOKENS:], skip_special_tokens=False))
        whole = with_reasoning(text, reasoning, opened=opened)
        ids = list(self._tokenizer.encode(whole, add_special_tokens=False))
        if not whole.endswith(self._stop):
            ids.append(self._end_of_turn_id)
        if trained:
            self.stream.append_turn(ids, None)
        else:
            self.stream.append_context(ids)


class PackedScript:
    """A policy that writes recorded turns, and packs them with what it is shown.

    Args:
        turns: texts, each with the native reasoning before it.
        first_trained_turn: the loss is on the turns from this one on, counted from 0.
    """

    def __init__(
        self, sequence: PackedSequence, turns: Iterable[tuple[str, str | None]], first_trained_turn: int
    ) -> None:
        self.sequence = sequence
        self._turns = enumerate(turns)
        self._first_trained_turn = first_trained_turn

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        self.sequence.append_messages(messages)
        number, (text, reasoning) = next(self._turns, (0, (None, None)))
        if text is None:
            return None
        self.sequence.append_turn(text, reasoning, trained=number >= self._first_trained_turn)
        return AssistantTurn(text)
