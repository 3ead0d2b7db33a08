"""Policies: what gives the assistant turns of a rollout. `Episode.run` asks one for each turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from verl_video_tools.core.types import Message


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """One turn of the assistant.

    Attributes:
        text: the turn without its end-of-turn token.
        truncated: the turn was cut by its token limit; its calls are refused, a complete answer still counts.
        reasoning: native reasoning that was taken from the turn (`core.reasoning`); recorded, and not read.
    """

    text: str
    truncated: bool = False
    reasoning: str | None = None


class Policy(Protocol):
    """The assistant of one rollout: a served model, a chat endpoint or a script."""

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        """The next assistant turn; None if there is no further one (stop reason `script_exhausted`).

        Args:
            messages: what is new since the last turn: at first the whole prompt, then the observation, one user message
                with the pictures that it shows.

        Raises:
            PolicyError: no turn can be given, for a reason outside the policy's reach; the rollout is aborted.
        """
        ...


class ScriptedPolicy:
    """Gives fixed texts, whatever it is shown."""

    def __init__(self, turns: Iterable[str]) -> None:
        self._turns = iter(turns)

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        text = next(self._turns, None)
        return None if text is None else AssistantTurn(text)
