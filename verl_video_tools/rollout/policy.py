"""The two sides that `Episode.run` calls: a policy gives each turn of the assistant, a budget checks each message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from verl_video_tools.core.types import Content, Message, StopReason


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


def until_stop(text: str, stop: Sequence[str]) -> str:
    """The text up to the end of its first stop string; all of it without one.

    Engines compare a turn's text with the strings. Its last token may hold more: in real vocabularies `>` and what
    follows it are often one token.
    """
    ends = [text.index(string) + len(string) for string in stop if string in text]
    return text[: min(ends, default=None)]


class Policy(Protocol):
    """The assistant of one rollout: a served model, a chat endpoint or a script."""

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        """The next assistant turn; None if there is no further one (stop reason `script_exhausted`).

        Args:
            messages: what is new since the last turn: at first the whole prompt, then the observation, one user message
                with the images that it shows.

        Raises:
            PolicyError: no turn can be given, for a reason outside the policy's reach; the rollout is aborted.
        """
        ...


@runtime_checkable
class AnswersDetached(Protocol):
    """A policy that also answers requests outside its dialogue. Recorded turns, for one, cannot."""

    async def detached(self, messages: Sequence[Message]) -> AssistantTurn | None:
        """The reply to a request of its own, of which the dialogue shows nothing; None if the request does not fit, or
        a script has ended.

        Raises:
            PolicyError: as `Policy.turn`.
        """
        ...


class BudgetCheck(Protocol):
    """Says, before a pixel is decoded, whether a message fits. Images may come without pixels; sizes are final."""

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        """`PROMPT_BUDGET` or `IMAGE_BUDGET` if the prompt does not fit, else None."""
        ...

    def refuses_observation(self, content: Content) -> StopReason | None:
        """`PROMPT_BUDGET`, `RESPONSE_BUDGET` or `IMAGE_BUDGET` if the observation does not fit, else None."""
        ...


class ScriptedPolicy:
    """Gives fixed texts, whatever it is shown."""

    def __init__(self, turns: Iterable[str]) -> None:
        self._turns = iter(turns)

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        text = next(self._turns, None)
        return None if text is None else AssistantTurn(text)

    async def detached(self, messages: Sequence[Message]) -> AssistantTurn | None:
        return await self.turn(messages)
