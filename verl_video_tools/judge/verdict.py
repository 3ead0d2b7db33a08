"""Read a judge's reply: tolerant of dress, strict about the label.

A label is looked for, in this order: in the field "label" of a JSON object; after a word such as "Verdict:" or
"Judgement:" on a line of its own; as the whole reply. It must be the whole value: "0.51", "Score: 10", "1/1" or
"1 - same" are no labels. Several labels must agree. Anything else is unreadable, which is a failure and not a verdict.
"""

from __future__ import annotations

import json
import re
from typing import Any

from verl_video_tools.errors import JudgeError
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
_LABELLED_LINE = re.compile(
    r"^[\s*_#>-]*(?:label|verdict|judge?ment|score)[\s*_]*[:=](.*)$", re.IGNORECASE | re.MULTILINE
)
_DRESS = " \t\r\n*_`\"'.,;"


def read_verdict(reply: str) -> AnswerLabel:
    """The label that a reply states.

    Raises:
        JudgeError: there is none, or several that differ.
    """
    text = _without_reasoning(reply)
    values: list[Any] = _json_labels(text) or _LABELLED_LINE.findall(text) or [text]
    labels = {_LABELS.get(" ".join(str(value).casefold().split()).strip(_DRESS)) for value in values}
    label = labels.pop()
    if labels or label is None:
        raise JudgeError(f"the judge's reply holds no readable label: {reply[:200]!r}")
    return label


def _without_reasoning(reply: str) -> str:
    """What follows the reasoning that some models send along; nothing if the reasoning was cut off."""
    if "</think>" in reply:
        return reply.rpartition("</think>")[2]
    return "" if reply.lstrip().startswith("<think>") else reply


def _json_labels(text: str) -> list[Any]:
    """The field "label" of every JSON object in the text, also inside a code fence."""
    labels: list[Any] = []
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        end = position + 1
        try:
            found, end = decoder.raw_decode(text, position)
            if "label" in found:
                labels.append(found["label"])
        except (ValueError, RecursionError):
            pass
        position = text.find("{", end)
    return labels
