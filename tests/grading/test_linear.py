"""Whatever reads what a policy or another model writes takes time in proportion to its length.

A reward worker reads the answers of all its rollouts on one event loop, so a text that takes long stops all of them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from verl_video_tools.core.errors import JudgeError
from verl_video_tools.core.json_text import json_objects
from verl_video_tools.core.reasoning import split_reasoning
from verl_video_tools.core.truths import canonical_letter
from verl_video_tools.data.extractors import EXTRACTORS, get_extractor
from verl_video_tools.grading.choices import chosen_option
from verl_video_tools.grading.numbers import grade_number, relative_accuracy
from verl_video_tools.grading.segments import grade_segment
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.services.verdict import read_verdict, without_labels

MENU = ("red circle", "blue square", "a dog", "4")


def verdict(text: str) -> None:
    with contextlib.suppress(JudgeError):
        read_verdict(text)


READERS: dict[str, Callable[[str], Any]] = {
    "choice": lambda text: chosen_option(text, MENU),
    "choice without options": chosen_option,
    "number": lambda text: grade_number(text, "5"),
    "estimate": lambda text: relative_accuracy(text, "5"),
    "segment": lambda text: grade_segment(text, "[2.0, 7.0]"),
    "truth": lambda text: canonical_letter(text, MENU),
    "JSON": lambda text: list(json_objects(text)),
    "verdict": verdict,
    "labels": without_labels,
    "reasoning": lambda text: split_reasoning(text, get_method("longvt")),
    **{f"turns of {name}": get_method(name).parse for name in METHOD_NAMES},
    **{f"extractor {name}": partial(get_extractor(name).read, options=MENU) for name in EXTRACTORS},
}
# fmt: off
PIECES = [
    "(", "[", "{", "}", " ", "\n", " \n", '"', "'", "*", "_", "$", "<", "&", "-", "->", "\\", "...", "|", "7",
    "7 ", "\\boxed{", "\\boxed{\n", "\\text{", '{"answer": "', '{"answer": "B"} ', '{"a":', "<answer>",
    "</answer>", "<think>", "</think>", "<tool_call>", "</tool_call>",
    '<tool_call>{"name": "crop_video"}</tool_call>', "<video_zoom>", "A. ", "A.", "B ", "B, ", "(B)", "A|",
    "B+", "B or ", "not B ", "a.b.", "Mr. ", "answer is ", "the answer is B. ", "because ", "so B ",
    "blue square ", "a dog", "first option ", "# ", "1. ", "答案", "选", "정답은 ", "la respuesta ", "→",
    "wait, B. ", "from 2 to 7 ", "2:07 - ", "starts at 2 ", "1 min ", "correct ", "A: yes ",
]
# fmt: on
ENDS = ["", "\\boxed{A}"]


class Lines:
    """Counts the lines of the package that run."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, read: Callable[[str], Any], text: str) -> int:
        self.count, before = 0, sys.gettrace()
        sys.settrace(self._trace)
        try:
            read(text)
        finally:
            sys.settrace(before)
        return self.count

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "verl_video_tools" not in frame.f_code.co_filename:
            return None
        self.count += event == "line"
        return self._trace


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", READERS)
def test_twice_the_text_takes_twice_the_steps(name: str) -> None:
    """Four times the text runs about four times the lines. Work within patterns cannot be counted: long texts end
    before the timeout, which a pattern that tries every place against every other one does not."""
    lines, read = Lines(), READERS[name]
    for piece in PIECES:
        for end in ENDS:
            read(piece + end)  # fills caches
            short, long = (lines.of(read, piece * (length // len(piece)) + end) for length in (300, 1200))
            assert long <= 5 * short + 300, (piece, end, short, long)
            read(piece * (20_000 // len(piece)) + end)
