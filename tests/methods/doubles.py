"""Stand-ins for the services that methods ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.types import AnswerLabel


@dataclass
class ScoringRetriever:
    """Scores candidates by their position as the key of `best_frames` orders them, and remembers what it was asked."""

    error: Exception | None = None
    queries: list[tuple[str, int, int, float]] = field(default_factory=list)

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        if self.error is not None:
            raise self.error
        self.queries.append((text, len(candidates), num_frames, deadline_seconds))
        positions = sorted(range(len(candidates)), key=lambda position: -((37 * position) % 101))
        return [candidates[position] for position in positions[:num_frames]]


@dataclass
class StubJudge:
    """Gives one label to every answer, or fails for None, and remembers the answers."""

    label: AnswerLabel | None
    answers: list[str] = field(default_factory=list)

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        self.answers.append(answer)
        if self.label is None:
            raise JudgeError("out of reach")
        return self.label
