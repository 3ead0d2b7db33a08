"""Several attempts at a question: a method's own policy of verification, retry and fallback in evaluation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method, Trajectory


@dataclass(frozen=True)
class Attempt:
    """One rollout of a question.

    Attributes:
        method: that it was made with.
        fault: why it does not count, and another one is made if any is left; None where it counts, or was lost.
    """

    method: Method
    trajectory: Trajectory
    fault: str | None

    def summary(self) -> dict[str, Any]:
        """What a record tells of it."""
        reason = self.trajectory.stop_reason
        summary = {"stop_reason": None if reason is None else str(reason), "answer": self.trajectory.answer}
        return {**summary, **self.trajectory.counts(), "fault": self.fault}


@dataclass(frozen=True)
class Attempts:
    """All attempts at a question, in order; the last one is taken, unless it has a fault."""

    made: tuple[Attempt, ...]

    @property
    def taken(self) -> int | None:
        """Number of the attempt that counts, from 1; None where none does."""
        return len(self.made) if self.made[-1].fault is None else None

    @property
    def trajectory(self) -> Trajectory:
        """The rollout that stands for all: the one taken; else the last, which then has no answer."""
        last = self.made[-1].trajectory
        return last if self.taken is not None else replace(last, answer=None)

    @property
    def method(self) -> Method:
        """The method that this rollout was made with."""
        return self.made[-1].method


async def attempted(method: Method, run: Callable[[Method, int], Awaitable[Trajectory]], max_attempts: int) -> Attempts:
    """Attempts at one question until one counts (`Method.attempt`, `Method.attempt_fault`).

    A rollout that is flagged (video, endpoint) says nothing of the model, so that no other follows it.

    Args:
        run: makes one whole rollout with the method that it is given; the number counts from 1.
        max_attempts: rollouts at most.

    Raises:
        UsageError: `max_attempts` is below 1, or the method knows of one attempt only.
    """
    if max_attempts < 1:
        raise UsageError(f"a question takes at least 1 attempt, got {max_attempts}")
    made: list[Attempt] = []
    for number in range(1, max_attempts + 1):
        configured = method if max_attempts == 1 else method.attempt(number, max_attempts)
        trajectory = await run(configured, number)
        is_lost = bool(trajectory.flags) or trajectory.is_lost()
        fault = None if is_lost or max_attempts == 1 else configured.attempt_fault(trajectory)
        made.append(Attempt(configured, trajectory, fault))
        if fault is None:
            break
    return Attempts(tuple(made))
