"""Answers noted in a rollout's record, and given again: executed anew it shows the same frames, without an encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verl_video_tools.core.errors import RetrievalError
from verl_video_tools.core.types import Retriever, Trajectory


class RecordingRetriever:
    """A `core.types.Retriever` that notes another's answers.

    Args:
        retriever: asked.
        answers: each answer is appended to it.
    """

    def __init__(self, retriever: Retriever, answers: list[list[int]]) -> None:
        self._retriever = retriever
        self._answers = answers

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        best = await self._retriever.best_frames(video_path, candidates, text, num_frames, deadline_seconds)
        self._answers.append(list(best))
        return best


def recorded_answers(trajectory: Trajectory) -> list[list[int]]:
    """What the retriever answered in a rollout, in order: the argument of `RecordedRetriever`."""
    of_calls = [answer for call in trajectory.calls() for answer in call.retrieved_frames]
    return [*trajectory.retrieved_frames, *of_calls]


class RecordedRetriever:
    """A `core.types.Retriever` that gives recorded answers in their order.

    Args:
        answers: frame indices, the best one first, one list per query (`recorded_answers`).
    """

    def __init__(self, answers: Iterable[Sequence[int]]) -> None:
        self._answers = iter([list(answer) for answer in answers])

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """The next recorded answer.

        Raises:
            RetrievalError: there is none, or it is no answer to this query: the rollout does not replay.
        """
        answer = next(self._answers, None)
        if answer is None:
            raise RetrievalError(f"no frames are recorded for {text!r}; export the rollout again from its record")
        if len(answer) != min(num_frames, len(candidates)) or not set(answer) <= set(candidates):
            raise RetrievalError(
                f"the frames recorded next, {answer}, are not {num_frames} of the {len(candidates)} candidates for "
                f"{text!r}; export the rollout again with these settings"
            )
        return answer
