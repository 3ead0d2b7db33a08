"""Which grades a judge gives, and what it is told of them."""

from __future__ import annotations

from dataclasses import dataclass

from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.judge.verdict import reminder


@dataclass(frozen=True)
class Profile:
    """Packaged instructions, and the labels that they know."""

    prompt: str
    """Name of the file in this package."""
    labels: tuple[AnswerLabel, ...]

    @property
    def reminder(self) -> str:
        """What a judge is told whose reply could not be read."""
        *others, last = (label.value for label in self.labels)
        return reminder('{"label": "incorrect"}', f"the label is {', '.join(others)} or {last}")


_THREE = (AnswerLabel.CORRECT, AnswerLabel.PARTIAL, AnswerLabel.INCORRECT)

PROFILES = {
    "graded": Profile("prompt.txt", _THREE),
    "longvt": Profile("prompt_longvt.txt", _THREE),
    "videosiah": Profile("prompt_videosiah.txt", (AnswerLabel.CORRECT, AnswerLabel.INCORRECT)),
}
"""By the name that `JudgeConfig.profile` takes.

graded     ours: partly right is what says a part and nothing wrong.
longvt     LongVT's reward (arXiv 2511.20785, 4.2): fully consistent, partially consistent, which may be imprecise, or
           inconsistent; worth 1, 0.5 and 0.
videosiah  right or wrong, as LongVT's evaluation asks its judge on VideoSIAH-Eval (code: 1 or 0).
"""
