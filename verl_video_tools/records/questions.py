"""How a list of rollouts names their questions: what is asked, and the options apart from it."""

from __future__ import annotations

import re

_OPTION = re.compile(r"^\s*\(?([A-Z])\s?[.):]\s*(?=\S)")
"""The mark before an option that has a line of its own: "A. red", "(A) red", "A: red"."""


def split_question(question: str) -> tuple[str, str]:
    """What is asked in one line, and its options in another; the latter is empty where there are none.

    Options stand on lines of their own, lettered from A on. What follows them, such as "Answer with a letter.", belongs
    to neither part.
    """
    lines = question.splitlines()
    first = next((number for number, line in enumerate(lines) if _letter(line) == "A"), None)
    if first is None or first + 1 >= len(lines) or _letter(lines[first + 1]) != "B":
        return _in_one_line(lines), ""
    count = 0
    while first + count < len(lines) and _letter(lines[first + count]) == chr(ord("A") + count):
        count += 1
    return _in_one_line(lines[:first]), _in_one_line(lines[first : first + count])


def _letter(line: str) -> str | None:
    found = _OPTION.match(line)
    return None if found is None else found[1]


def _in_one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
