"""Which grades a judge gives, and how its reply is read: tolerant of dress, strict about the label.

A reply states a label in the field "label" of a JSON object that begins a line; after a word such as "Verdict:" or
"Judgement:" on a line of its own; or by being nothing else. It must be the whole value: "0.51", "Score: 10", "1/1" or
"1 - same" are no labels. Anything else is unreadable, which is a failure and not a verdict.

A judge may quote the answer that it judges, and the policy that wrote it would learn to be quoted. So all labels of a
reply must agree, those amid a sentence too; what stands beside the label must not speak of a lower one; and an answer
reaches the judge without anything that would be read as a label if it were quoted (`without_labels`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.reasoning import NATIVE_TAG, without_reasoning
from verl_video_tools.core.types import AnswerLabel

_LABELS = {
    "correct": AnswerLabel.CORRECT,
    "partial": AnswerLabel.PARTIAL,
    "partially correct": AnswerLabel.PARTIAL,
    "incorrect": AnswerLabel.INCORRECT,
    # Prompts of published code ask for these numbers.
    "1": AnswerLabel.CORRECT,
    "1.0": AnswerLabel.CORRECT,
    "0.5": AnswerLabel.PARTIAL,
    "0": AnswerLabel.INCORRECT,
    "0.0": AnswerLabel.INCORRECT,
}
_LABEL_WORD = r"(?:label|verdict|judge?ment|score)"
# Blanks of one line only: with newlines among them, a reply of blank lines would take time as the square of its length.
_LABELLED_LINE = re.compile(
    rf"^(?:[^\S\n]|[*_#>-])*{_LABEL_WORD}(?:[^\S\n]|[*_])*[:=](.*)$", re.IGNORECASE | re.MULTILINE
)
_BEGINS_LINE = re.compile(
    rf"^(?:[^\S\n]|[*_#>`\[-])*(?:json[^\S\n]*)?(?:{_LABEL_WORD}(?:[^\S\n]|[*_])*[:=](?:[^\S\n]|[*_])*)?$",
    re.IGNORECASE,
)
_NEXT_OBJECT = re.compile(r"[\s,;]*$")
_DRESS = " \t\r\n*_`\"'.,;"

_NEGATED = r"(?:not|n['\u2019]t|never|hardly|neither|nor|cannot|far from)\W+(?:\w+\W+){0,2}"
_INCORRECT_WORDS = rf"\b(?:incorrect(?:ly)?|wrong(?:ly)?|inaccurate|false)\b|{_NEGATED}(?:correct|right|accurate)\b"
_LOWER = {
    AnswerLabel.CORRECT: re.compile(rf"{_INCORRECT_WORDS}|\bpartial(?:ly)?\b", re.IGNORECASE),
    AnswerLabel.PARTIAL: re.compile(_INCORRECT_WORDS, re.IGNORECASE),
}
"""Words that speak of a lower label, by the one that is stated."""

_AFTER_LABEL_WORD = re.compile(rf"({_LABEL_WORD})([\s*_\"'`:=]+)", re.IGNORECASE)
_SEPARATORS = str.maketrans(":=", "  ")
_OBJECT_START = re.compile(r"\{(?=\s*[\"}])")
_MAX_OBJECT_LENGTH = 8_000
_BRACES = str.maketrans("{}", "()")
_REASONING_TAG = re.compile(rf"<(/?{NATIVE_TAG})>")


def reminder(example: str, rule: str) -> str:
    """What a judge is told whose reply could not be read.

    Args:
        example: of a reply.
        rule: what it may say.
    """
    return f"That reply could not be read. Reply with one JSON object and nothing else, such as {example}; {rule}."


def read_verdict(reply: str) -> AnswerLabel:
    """The label that a reply states.

    Raises:
        JudgeError: there is none, several that differ, or words that contradict it.
    """
    text = without_reasoning(reply)
    objects = [found for found in _objects(text) if "label" in found.content]
    rest = _without(text, objects)
    lines = _LABELLED_LINE.findall(rest)
    values = [found.content["label"] for found in objects] + [line for line in lines if line.strip(_DRESS)]
    if not any(found.begins_line for found in objects) and not lines:
        values = [text]
    labels = {_LABELS.get(" ".join(str(value).casefold().split()).strip(_DRESS)) for value in values}
    label = labels.pop() if labels else None
    if labels or label is None:
        raise JudgeError(f"the judge's reply holds no readable label: {reply[:200]!r}")
    beside = [rest, *(str(value) for found in objects for name, value in found.content.items() if name != "label")]
    if label in _LOWER and any(_LOWER[label].search(words) for words in beside):
        contradiction = f"it says {label.value}, and speaks of a lower one"
        raise JudgeError(f"the judge's reply holds no readable label: {contradiction}: {reply[:200]!r}")
    return label


def without_labels(answer: str) -> str:
    """An answer in which nothing would be read as a label, were it quoted: braces become parentheses, words such as
    "label" or "score" lose the colon behind them, and no tag ends a reasoning, after which alone a reply is read."""
    plain = _REASONING_TAG.sub(r"(\1)", answer.translate(_BRACES))
    return _AFTER_LABEL_WORD.sub(lambda found: found[1] + found[2].translate(_SEPARATORS), plain)


@dataclass(frozen=True, slots=True)
class _Object:
    """A JSON object in a text."""

    start: int
    end: int
    content: dict[str, Any]
    begins_line: bool
    """Nothing but dress, or an object that does, stands before it on its line."""


def _objects(text: str) -> Iterator[_Object]:
    """JSON objects from left to right, not those inside others, in time proportional to the text's length.

    What begins as an object and ends as none is passed over up to where it fails.
    """
    decoder = json.JSONDecoder()
    previous: _Object | None = None
    end = 0
    while candidate := _OBJECT_START.search(text, end):
        position = candidate.start()
        try:
            # A piece of bounded length: json's errors count the lines before them, from the beginning.
            content, length = decoder.raw_decode(text[position : position + _MAX_OBJECT_LENGTH])
        except json.JSONDecodeError as error:
            end = position + max(error.pos, 1)
        except (ValueError, RecursionError):  # a number of too many digits; nested too deep
            return
        else:
            end = position + length
            line = text[max(text.rfind("\n", 0, position) + 1, 0 if previous is None else previous.end) : position]
            follows = previous is not None and previous.begins_line and _NEXT_OBJECT.match(line) is not None
            previous = _Object(position, end, content, follows or _BEGINS_LINE.match(line) is not None)
            yield previous


def _without(text: str, objects: list[_Object]) -> str:
    parts, start = [], 0
    for found in objects:
        parts.append(text[start : found.start])
        start = found.end
    return "".join([*parts, text[start:]])


@dataclass(frozen=True)
class Profile:
    """Packaged instructions, and the labels that they know."""

    prompt: str
    """Name of the file in `services/prompts`."""
    labels: tuple[AnswerLabel, ...]

    @property
    def reminder(self) -> str:
        """What a judge is told whose reply could not be read."""
        *others, last = (label.value for label in self.labels)
        return reminder('{"label": "incorrect"}', f"the label is {', '.join(others)} or {last}")


_THREE = (AnswerLabel.CORRECT, AnswerLabel.PARTIAL, AnswerLabel.INCORRECT)

PROFILES = {
    "graded": Profile("judge.txt", _THREE),
    "longvt": Profile("judge_longvt.txt", _THREE),
    "videosiah": Profile("judge_videosiah.txt", (AnswerLabel.CORRECT, AnswerLabel.INCORRECT)),
}
"""By the name that `JudgeConfig.profile` takes.

graded     ours: partly right is what says a part and nothing wrong.
longvt     LongVT's reward (arXiv 2511.20785, 4.2): fully consistent, partially consistent, which may be imprecise, or
           inconsistent; worth 1, 0.5 and 0.
videosiah  right or wrong, as LongVT's evaluation asks its judge on VideoSIAH-Eval (code: 1 or 0).
"""
