"""Which grades a judge gives, and how its reply is read: tolerant of dress, strict about the label.

A reply states a label in the field "label" of a JSON object that begins a line; after a word such as "Verdict:" or
"Judgement:" on a line of its own; or by being nothing else. It must be the whole value: "0.51", "Score: 10", "1/1" or
"1 - same" are no labels. Anything else is unreadable, which is no verdict.

A judge may quote the answer that it judges, and the policy that wrote it would learn to be quoted. So all labels of a
reply must agree, those amid a sentence too; what stands beside the label must not speak of a lower one; and an answer
reaches the judge without anything that would be read as a label if it were quoted (`without_labels`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.json_text import located_json_objects
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
_BRACES = str.maketrans("{}", "()")
_REASONING_TAG = re.compile(rf"<(/?{NATIVE_TAG})>")


def read_verdict(reply: str) -> AnswerLabel:
    """The label that a reply states.

    Raises:
        JudgeError: it states no label, several that differ, or words that contradict it.
    """
    text = without_reasoning(reply)
    stated: list[Any] = []  # values of labels
    reasons: list[str] = []  # what their objects say beside them
    pieces: list[str] = []  # the text around their objects
    begins_line = is_stated = False
    end = removed_to = 0
    for content, begin, after in located_json_objects(text):
        # What stands before the object on its line, or since the object before it.
        line = text[max(text.rfind("\n", end, begin) + 1, end) : begin]
        begins_line = _BEGINS_LINE.match(line) is not None or (begins_line and _NEXT_OBJECT.match(line) is not None)
        end = after
        if "label" in content:
            is_stated = is_stated or begins_line
            stated.append(content.pop("label"))
            reasons += map(str, content.values())
            pieces.append(text[removed_to:begin])
            removed_to = after
    rest = "".join([*pieces, text[removed_to:]])
    lines = _LABELLED_LINE.findall(rest)
    values = stated + [line for line in lines if line.strip(_DRESS)]
    if not is_stated and not lines:
        values = [text]
    labels = {_LABELS.get(" ".join(str(value).casefold().split()).strip(_DRESS)) for value in values}
    label = labels.pop() if labels else None
    if labels or label is None:
        raise JudgeError(f"the judge's reply holds no readable label: {reply[:200]!r}")
    if label in _LOWER and any(_LOWER[label].search(words) for words in [rest, *reasons]):
        contradiction = f"it says {label.value}, and speaks of a lower one"
        raise JudgeError(f"the judge's reply holds no readable label: {contradiction}: {reply[:200]!r}")
    return label


def without_labels(answer: str) -> str:
    """An answer in which nothing would be read as a label, were it quoted: braces become parentheses, words such as
    "label" or "score" lose the colon behind them, and no tag ends a reasoning, after which alone a reply is read."""
    plain = _REASONING_TAG.sub(r"(\1)", answer.translate(_BRACES))
    return _AFTER_LABEL_WORD.sub(lambda match: match[1] + match[2].translate(_SEPARATORS), plain)


@dataclass(frozen=True)
class Profile:
    """Packaged instructions, and the labels that they know."""

    prompt: str
    """Name of the file in `services/prompts`."""
    labels: tuple[AnswerLabel, ...]

    @property
    def reminder(self) -> str:
        """The message to a judge after a reply that could not be read."""
        *others, last = (label.value for label in self.labels)
        return (
            "That reply could not be read. Reply with one JSON object and nothing else, such as "
            f'{{"label": "incorrect"}}; the label is {", ".join(others)} or {last}.'
        )


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
