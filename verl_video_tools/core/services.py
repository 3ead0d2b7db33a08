"""Interfaces of other models that a rollout may ask: a judge of answers, a search for frames, and a model for tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from verl_video_tools.core.frames import FrameRecord
from verl_video_tools.core.messages import Content

Service = TypeVar("Service", covariant=True)


@dataclass(frozen=True)
class RecordedByCall(Generic[Service]):
    """In place of a service, what it told a recorded rollout. Calls of one turn ask at the same time, so the order of
    the answers does not tell whose they are.

    Attributes:
        of_call: a stand-in for the calls of the rollout, which are counted from 1; 0: for its initial frames.
    """

    of_call: Callable[[int], Service]


class AnswerLabel(StrEnum):
    """How an answer compares with the truth."""

    CORRECT = "correct"
    PARTIAL = "partial"
    INCORRECT = "incorrect"

    @property
    def score(self) -> float:
        """1 for a right answer, 0.5 for a partly right one, otherwise 0: the reward of methods with partial credit."""
        return {AnswerLabel.CORRECT: 1.0, AnswerLabel.PARTIAL: 0.5, AnswerLabel.INCORRECT: 0.0}[self]


class Judge(Protocol):
    """Compares a free-form answer with the truth, for questions that no rule can decide."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """The judge's verdict on one answer.

        Raises:
            JudgeError: there is no verdict. It never counts as a wrong answer.
        """
        ...


class Retriever(Protocol):
    """Finds the frames of a video that a text describes."""

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """The `num_frames` candidates (all, if there are fewer) most similar to the text, the best first.

        Args:
            candidates: frame indices in order of time, without duplicates. The earlier of two equally similar ones
                ranks higher.

        Raises:
            RetrievalError: there is no answer in time.
            VideoError: the candidates cannot be decoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits of one rollout's requests to the tools' model.

    Attributes:
        calls: number of requests.
    """

    calls: int = 8


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply of a tool's model.

    Attributes:
        text: never empty; without the model's reasoning.
        model: the model's name.
        prompt_tokens, completion_tokens: as the endpoint counts them; 0 if it does not.
        cut: the reply reached its limit of tokens.
    """

    text: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False


class ToolModel(Protocol):
    """A model for tools, such as a captioner, a text recogniser or a sub-agent. It is not the policy and is not
    trained."""

    @property
    def limits(self) -> ModelLimits:
        """The limits of one rollout."""
        ...

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """The reply to one user message of texts and frames.

        Raises:
            CallRejected: `no_reply` if the model gives no usable reply; in a rollout also `model_budget` after the last
                allowed request.
            ToolModelError: the model cannot be asked.
        """
        ...


@dataclass
class ModelCall:
    """One exchange with a tool's model in the record of a call."""

    request: str
    """The message as text, with an image mark for each frame."""
    frames: list[FrameRecord] = field(default_factory=list)
    """In the order of the message."""
    reply: str | None = None
    """None without a reply; `error` then gives the reason as ``"<code>: <reason>"``."""
    error: str | None = None
    model: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: float = 0.0
    cut: bool = False
