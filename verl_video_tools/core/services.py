"""What a rollout may ask another model: whether an answer is right, which frames show a text, and what frames show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from verl_video_tools.core.frames import FrameRecord
from verl_video_tools.core.messages import Content


class AnswerLabel(StrEnum):
    """How an answer compares with the truth."""

    CORRECT = "correct"
    PARTIAL = "partial"
    INCORRECT = "incorrect"

    @property
    def score(self) -> float:
        """1 where right, 0.5 where partly right, else 0: what methods with graded answers pay."""
        return {AnswerLabel.CORRECT: 1.0, AnswerLabel.PARTIAL: 0.5, AnswerLabel.INCORRECT: 0.0}[self]


class Judge(Protocol):
    """Compares a free-form answer with the truth, for questions that no rule can decide."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """The judge's verdict on one answer.

        Raises:
            JudgeError: no verdict could be had. It is never taken for a wrong answer.
        """
        ...


class Retriever(Protocol):
    """Finds the frames of a video that show what a text says."""

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """The `num_frames` candidates (all, if there are fewer) most like the text, the best one first.

        Args:
            candidates: frame indices in order of time, without duplicates; of two that are equally alike the earlier
                one is better.

        Raises:
            RetrievalError: no answer could be had in time.
            VideoError: the candidates cannot be decoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one rollout may ask of its tools' model.

    Attributes:
        calls: questions.
    """

    calls: int = 8


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a tool's model replied.

    Attributes:
        text: never empty; without the model's reasoning.
        model: its name.
        prompt_tokens, completion_tokens: as the endpoint counts them; 0 where it does not.
        cut: the reply ended at its limit of tokens.
    """

    text: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False


class ToolModel(Protocol):
    """A model that tools ask: a captioner, a reader of text in frames, a sub-agent. Not the policy, and not trained."""

    @property
    def limits(self) -> ModelLimits:
        """What one rollout may ask of it."""
        ...

    async def ask(self, content: Content, deadline_seconds: float) -> ModelReply:
        """Its reply to one user message of texts and frames.

        Raises:
            CallRejected: `no_reply`, where the model is there and gives none that can be used; in a rollout also
                `model_budget`, where the rollout has asked all that it may.
            ToolModelError: it cannot be asked.
        """
        ...


@dataclass
class ModelCall:
    """One exchange with a tool's model, as the record of its call holds it."""

    request: str
    """The message as text, an image mark for each frame."""
    frames: list[FrameRecord] = field(default_factory=list)
    """In their order in the message."""
    reply: str | None = None
    """None where there was none; `error` then says why, as ``"<code>: <reason>"``."""
    error: str | None = None
    model: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: float = 0.0
    cut: bool = False
