"""`JudgeWatch`: when a run ends because of its judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.services.config import JudgeConfig

_ADVICE = (
    "See the log of the reward workers; `vvt doctor --judge-base-url` checks a judge. Started again, the run goes on "
    "from its last checkpoint"
)


class JudgeWatch:
    """Counts steps in which a judge was asked and gave no verdict.

    Args:
        judge: of the run; None where it has none.
    """

    def __init__(self, judge: JudgeConfig | None) -> None:
        self._judge = judge
        self._num_silent_steps = 0
        self.begin_step()

    def begin_step(self) -> None:
        self._asked = self._answered = False
        self._unjudged: set[str] = set()

    def see(self, key: str, reward_info: Mapping[str, Any]) -> None:
        """One rollout of the step, by the key of one of its sequences and the breakdown of its reward. It may be shown
        twice."""
        failed = bool(reward_info.get("judge_failed"))
        if failed:
            self._unjudged.add(key.rsplit("_", 1)[0])
        asked = failed or bool(reward_info.get("judge_calls"))
        self._asked |= asked
        self._answered |= asked and not failed

    def end_step(self, step: int) -> None:
        """Raises JudgeError after `max_steps_without_verdict` such steps; those that ask no judge do not count."""
        if self._answered:
            self._num_silent_steps = 0
        elif self._asked:
            self._num_silent_steps += 1
        self._check(step, self._num_silent_steps, f"{self._num_silent_steps} steps in a row")

    def check_refills(self, step: int, num_batches: int) -> None:
        """Dynamic sampling replaces groups without a verdict by others without one: a step that never ends counts as
        the batches that it has asked for.

        Raises:
            JudgeError: they are as many as steps without a verdict may be.
        """
        if self._asked and not self._answered:
            during = f"{self._num_silent_steps} steps and {num_batches} batches that dynamic sampling replaced"
            self._check(step, self._num_silent_steps + num_batches, during)

    def check_failures(self, step: int, num_failures: int | None = None) -> None:
        """Raises JudgeError where any failure is to end the run (`on_failure`).

        Args:
            num_failures: default: rollouts of the step, also those of groups that dynamic sampling has dropped.
        """
        num_failures = len(self._unjudged) if num_failures is None else num_failures
        if num_failures and self._judge is not None and self._judge.on_failure == "stop":
            raise JudgeError(
                f"step {step}: the judge gave no verdict (found {num_failures} times), and "
                f"video_tools.judge.on_failure=stop. {_ADVICE}"
            )

    def _check(self, step: int, num_silent: int, during: str) -> None:
        if self._judge is not None and num_silent >= self._judge.max_steps_without_verdict:
            raise JudgeError(
                f"step {step}: the judge gave no verdict at all during {during} "
                f"(video_tools.judge.max_steps_without_verdict={self._judge.max_steps_without_verdict}). {_ADVICE}"
            )
