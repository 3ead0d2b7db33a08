"""Video-MMMU: letters of options, and open answers compared as texts and numbers, as its official scoring does.

Source: lmms_eval/tasks/videommmu/utils.py, after eval/eval_utils.py of github.com/MMMU-Benchmark/MMMU.
"""

from __future__ import annotations

import re

from verl_video_tools.core.types import AnswerLabel, Judge, Sample
from verl_video_tools.data.extractors import Extractor, Reading
from verl_video_tools.data.extractors.letters import letter_extractor, video_mmmu_letter

_CUES = (
    *("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ", "are ", "in total ", "total "),
    *("identify ", "recognize ", "calculated as ", "counted as ", "measured as ", "observed as ", "concluded as "),
    *("found to be ", "equals ", "determined to be ", "number of ", "value is ", "adds up to ", "have ", "has "),
)
"""What stands after the last of one of them, up to the end of its line, may be the answer."""
_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"-?(?:\d*\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)
_DECIMALS = 2


def open_answer_is_right(answer: str, truth: str) -> bool:
    """Whether an answer gives an open question's truth: one of its key phrases holds the truth's text, or is or holds a
    number that equals it to two decimals. Case does not count."""
    if not answer:
        return False
    phrases = _key_phrases(answer)
    stated = [*phrases, *(number for phrase in phrases for pattern in _NUMBERS for number in pattern.findall(phrase))]
    expected = _normalised(truth)
    for part in (part for text in stated for part in _normalised(text)):
        if isinstance(part, float):
            if part in expected:
                return True
        elif any(isinstance(text, str) and text in part for text in expected):
            return True
    return False


def _key_phrases(answer: str) -> list[str]:
    """Of each line the shortest text that follows a cue, in lower case; the whole answer where no line has one."""
    text = answer.strip().strip(".").lower()
    lines = text.split("\n")
    phrases = []
    for number, line in enumerate(lines):
        shortest = ""
        for cue in _CUES if number < len(lines) - 1 else (*_CUES, "="):
            tail = line.split(cue)[-1].strip()
            if cue in line and (not shortest or len(tail) < len(shortest)):
                shortest = tail
        if shortest not in {"", *":,.!?;'"}:
            phrases.append(shortest)
    return phrases or [text]


def _normalised(text: str) -> list[str | float]:
    """A number rounded, or a text in lower case; a single character only with a space beside it."""
    text = text.strip()
    try:
        return [round(float(text.replace(",", "")), _DECIMALS)]
    except ValueError:
        text = text.lower()
    return [f" {text}", f"{text} "] if len(text) == 1 else [text]


class OpenAnswerRule(Judge):
    """The official scoring of Video-MMMU's open questions, in the place of a judge."""

    async def judge(self, question: str, ground_truth: str, answer: str) -> AnswerLabel:
        is_right = open_answer_is_right(answer, ground_truth)
        return AnswerLabel.CORRECT if is_right else AnswerLabel.INCORRECT


_RULE = "A. or A:, else (A), else A before a space, else the text of an option; open answers by phrases and numbers"
_OF_CHOICES = letter_extractor(video_mmmu_letter, _RULE)


def _read(answer: str, sample: Sample) -> Reading | None:
    if sample.question_type in ("open", "numeric"):
        return Reading(answer.strip() or None, open_answer_is_right(answer, sample.ground_truth))
    return _OF_CHOICES.read(answer, sample)


VIDEO_MMMU = Extractor(_read, _RULE)
