"""Read a judge's reply: tolerant of dress, strict about the label.

A label is looked for, in this order: in the field "label" of a JSON object; after a word such as "Verdict:" or
"Judgement:" on a line of its own; as the whole reply. It must be the whole value: "0.51", "Score: 10", "1/1" or
"1 - same" are no labels. Several labels must agree. Anything else is unreadable, which is a failure and not a verdict.
"""

from __future__ import annotations

import re
from typing import Any

from verl_video_tools.errors import JudgeError
from verl_video_tools.protocols.json_object import json_objects
from verl_video_tools.protocols.reasoning import without_reasoning
from verl_video_tools.types import AnswerLabel

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
# Blanks of one line only: with newlines among them, a reply of blank lines would take time as the square of its length.
_LABELLED_LINE = re.compile(
    r"^(?:[^\S\n]|[*_#>-])*(?:label|verdict|judge?ment|score)(?:[^\S\n]|[*_])*[:=](.*)$", re.IGNORECASE | re.MULTILINE
)
_DRESS = " \t\r\n*_`\"'.,;"


def read_verdict(reply: str) -> AnswerLabel:
    """The label that a reply states.

    Raises:
        JudgeError: there is none, or several that differ.
    """
    text = without_reasoning(reply)
    in_json = [found["label"] for found in json_objects(text) if "label" in found]
    values: list[Any] = in_json or _LABELLED_LINE.findall(text) or [text]
    labels = {_LABELS.get(" ".join(str(value).casefold().split()).strip(_DRESS)) for value in values}
    label = labels.pop()
    if labels or label is None:
        raise JudgeError(f"the judge's reply holds no readable label: {reply[:200]!r}")
    return label
