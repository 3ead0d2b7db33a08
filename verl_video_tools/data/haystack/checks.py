"""Rules that drop a question without asking anyone ("linguistic heuristics", LongVT 3.1; the rules are ours)."""

from __future__ import annotations

import re

MAX_ANSWER_CHARACTERS = 120

_OF_THE_PIPELINE = re.compile(
    r"\b(?:in the frame|frames|captions?|descriptions?|timestamps?|segments?|part \d+)\b", re.IGNORECASE
)
_TELLS_TIME = re.compile(r"\b\d{1,2}:\d{2}\b|\b\d+(?:\.\d+)?[ -]?(?:s|secs?|seconds?|minutes?)\b", re.IGNORECASE)
_GUESSED = frozenset({"yes", "no", "true", "false", "none", "unknown", "nothing", "not visible", "not specified"})


def fault(question: str, answer: str) -> str | None:
    """Why a question is dropped; None if no rule speaks against it."""
    said = words(answer)
    if not said or said in _GUESSED:
        return "its answer can be guessed"
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return "its answer is long"
    if f" {said} " in f" {words(question)} ":
        return "it gives its answer away"
    if _TELLS_TIME.search(question):
        return "it tells where to look"
    if _OF_THE_PIPELINE.search(question) or _OF_THE_PIPELINE.search(answer):
        return "it speaks of descriptions"
    return None


def words(text: str) -> str:
    """The words of a text in small letters, one space between them."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))
