"""VideoZoomer's published scoring on texts: what it pays for, also where nothing was executed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.turns.tagged import video_zoom
from verl_video_tools.methods.videozoomer.grammar import Findings, grade_letter_reference, read_turns

ZOOM = '<think>so</think><video_zoom>{"segment": [4, 6], "fps": 2}</video_zoom>'
ANSWER = "<think>so</think><answer>B</answer>"


READ = [
    ([ANSWER], "B", True, 0),
    ([f" {ANSWER}\n"], "B", True, 0),
    ([ZOOM, ANSWER], "B", True, 1),
    ([ZOOM, ANSWER + "\n"], "B", True, 1),
    ([ZOOM, ANSWER + " "], "B", False, 1),
    ([ZOOM, " " + ANSWER], "B", False, 1),
    ([f" {ZOOM} ", ANSWER], "B", True, 1),
    ([ZOOM + " words after it", ANSWER], "B", True, 1),
    ([ZOOM] * 4 + [ANSWER], "B", True, 4),
    ([ZOOM, "words", ZOOM, ANSWER], "B", False, 1),
    ([ZOOM, video_zoom("no"), ZOOM, ANSWER], "B", False, 2),  # counted up to the first malformed turn
    ([ANSWER, ZOOM], "B", False, 0),
    ([video_zoom('{"segment": [4, 6], "fps": 2, "more": 1}'), ANSWER], "B", True, 1),
    ([video_zoom('{"segment": [4, 6, 8], "fps": "2"}'), ANSWER], "B", True, 1),
    ([video_zoom('{"segment": [4, 6], "fps": NaN}'), ANSWER], "B", False, 1),
    ([video_zoom('{"segment": [4, 6], "fps": 1e999}'), ANSWER], "B", False, 1),
    ([video_zoom('{"segment": 4, "fps": 2}'), ANSWER], "B", False, 1),
    ([video_zoom("[" * 5000), ANSWER], "B", False, 1),
    (["<think>a</think><answer>B</answer></answer>"], "B", False, 0),
    (["<answer>B</answer>"], "B", False, 0),
    (["just B"], "just B", False, 0),
    ([], "", False, 0),
]


def test_read_turns() -> None:
    for turns, answer, well_formed, num_calls in READ:
        assert read_turns(turns, max_frames=16) == Findings(answer, well_formed, num_calls, zoomed=num_calls > 0)


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("B", "B", True),
        ("B", "B.", True),
        ("B. The cat", "B", True),
        (r"\boxed{B}", "B", True),
        (r"so \boxed{A} or \boxed{ B }", "B", True),
        (r"\boxed{\text{B}}", "B", False),
        (r"\boxed{\text{B}}", r"\text{B}", True),
        (r"\boxed{B", "B", False),
        (r"\boxed{B. The shark.}", "B", True),
        ("A. or B. x", "B", True),
        ("D. Visit the U.S.", "D", False),  # the last capital before a full stop is S
        ("(B)", "B", False),
        ("B)", "B", False),
        ("b", "B", False),
        ("", "B", False),
    ],
)
def test_letters(answer: str, truth: str, right: bool) -> None:
    assert grade_letter_reference(answer, truth) is right


PARTS = ["<think>", "</think>", "<video_zoom>", "</video_zoom>", "<answer>", "</answer>", "{", "}", "B", "\n"]


@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), max_size=4))
def test_any_turns_are_scored(turns: list[str]) -> None:
    read = read_turns(turns, max_frames=16)
    assert 0 <= read.num_calls <= max(1, len(turns) - 1)
    assert not read.well_formed or turns[-1].rstrip("\n").endswith("</answer>") or len(turns) == 1
