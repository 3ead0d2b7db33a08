"""The synthetic world's questions for methods that know seconds, not frame numbers: window and open-ended form."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from verl_video_tools.types import AnswerLabel

from .questions import Question
from .world import VideoSpec

METHODS_IN_SECONDS = frozenset({"longvt"})
"""Methods that label frames with times instead of frame numbers, so that questions have to name times as well."""


@dataclass(frozen=True)
class OpenQuestion:
    """A question without options. `truth` is the name of a thing, or a number for questions that count."""

    text: str
    truth: str
    question_type: Literal["open", "numeric"]


def evidence_seconds(spec: VideoSpec, question: Question) -> tuple[float, float]:
    """Start and end, in seconds, of the part of the video that shows the answer; the end is that of its last frame."""
    first = min(start for start, _ in question.evidence)
    last = max(end for _, end in question.evidence)
    return first / spec.fps, (last + 1) / spec.fps


def in_seconds(spec: VideoSpec, question: Question) -> Question:
    """The same question and options; the window, or the frame, that it is about is named in seconds."""
    start, end = evidence_seconds(spec, question)
    text, *options = question.text.splitlines()
    text = re.sub(r"in frame \d+", f"in the frame at {start:.1f}s", text)
    text = re.sub(r"at \d+:\d+|between frames \d+ and \d+", f"between {start:.1f}s and {end:.1f}s", text)
    return replace(question, text="\n".join([text, *options]))


def open_question(spec: VideoSpec, question: Question) -> OpenQuestion:
    """The question in seconds and without its options."""
    text = in_seconds(spec, question).text.splitlines()[0]
    return OpenQuestion(text, question.options[question.answer], "numeric" if question.kind == "count" else "open")


class WorldJudge:
    """Judge of the synthetic world, where a thing has one name: an answer is right if it is the truth, word by word."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        is_correct = answer.casefold().split() == truth.casefold().split()
        return AnswerLabel.CORRECT if is_correct else AnswerLabel.INCORRECT
