"""What a rollout may ask another model: whether an answer is right, and which frames show a text."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol


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
