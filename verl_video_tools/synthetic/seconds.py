"""The synthetic world's questions for methods that know seconds, not frame numbers: window and open-ended form."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.world import VideoSpec


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


def windows_in_seconds(spec: VideoSpec, question: Question) -> Question:
    """The same question and options, with one decimal; also a clock becomes the window that shows the answer."""
    start, end = evidence_seconds(spec, question)
    text, *options = question.text.splitlines()
    text = re.sub(r"in frame \d+", f"in the frame at {start:.1f}s", text)
    text = re.sub(r"at \d+:\d+|between frames \d+ and \d+", f"between {start:.1f}s and {end:.1f}s", text)
    return replace(question, text="\n".join([text, *options]))


def frames_in_seconds(spec: VideoSpec, question: Question) -> Question:
    """The same question and options, with two decimals: each frame number replaced by its time, a clock by the window
    that shows the answer (reckoning seconds from minutes is beyond the tiny model)."""

    def seconds(number: str) -> str:
        return f"{int(number) / spec.fps:.2f} s"

    text, *options = question.text.splitlines()
    text = re.sub(r"at \d+:\d+", "between frames {} and {}".format(*question.evidence[0]), text)
    text = re.sub(r"in frame (\d+)", lambda match: f"at {seconds(match[1])}", text)
    text = re.sub(
        r"between frames (\d+) and (\d+)", lambda match: f"between {seconds(match[1])} and {seconds(match[2])}", text
    )
    return replace(question, text="\n".join([text, *options]))


def open_question(spec: VideoSpec, question: Question) -> OpenQuestion:
    """The question in seconds and without its options."""
    text = windows_in_seconds(spec, question).text.splitlines()[0]
    return OpenQuestion(text, question.options[question.answer], "numeric" if question.kind == "count" else "open")


class WorldJudge:
    """Judge of the synthetic world, where a thing has one name: an answer is right if it is the truth, word by word."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        is_correct = answer.casefold().split() == truth.casefold().split()
        return AnswerLabel.CORRECT if is_correct else AnswerLabel.INCORRECT
