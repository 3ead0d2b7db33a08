"""What VideoBrain's grammar reads out of a turn, strictly and as the published environment does."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.types import ParsedTurn
from verl_video_tools.methods.videobrain.grammar import parse_turn, parse_turn_reference

THINK = "<thinking>so</thinking>"
CALL = '<tool_call>{"name": "uniform_sample", "arguments": {"start_frame": 0, "end_frame": 9}}</tool_call>'
OTHER = '<tool_call>{"name": "clip_sample", "arguments": {"prompt": "dog"}}</tool_call>'
ANSWER = "<answer>B</answer>"


def summary(parsed: ParsedTurn) -> tuple[str | list[str] | None, bool]:
    """The answer, or names or error codes of the calls, or None; and whether the turn is well-formed."""
    if parsed.answer is not None:
        assert not parsed.calls
        return parsed.answer, parsed.well_formed
    calls = [call.error.code if call.error else call.name for call in parsed.calls]
    return calls or None, parsed.well_formed


TURNS = [
    (THINK + CALL, (["uniform_sample"], True), None),
    (f"well {THINK} so\n{CALL} ok", (["uniform_sample"], True), None),
    (THINK + ANSWER, ("B", True), None),
    (ANSWER, ("B", False), None),
    (ANSWER + THINK, ("B", False), None),
    (THINK + THINK + ANSWER, ("B", False), None),
    ("<thinking> </thinking>" + ANSWER, ("B", False), None),
    (THINK + "<answer> </answer>", (None, False), None),
    (THINK + "<answer>A</answer>" + ANSWER, ("B", False), None),
    (THINK + CALL + ANSWER, (["uniform_sample"], False), None),
    (THINK + ANSWER + CALL, (["uniform_sample"], False), None),
    (THINK + CALL + OTHER, (["multiple_calls"] * 2, False), (["clip_sample"], False)),
    (f"<thinking>{CALL}</thinking>{ANSWER}", ("B", False), (["uniform_sample"], False)),
    (f"<thinking>or <answer>C</answer>?</thinking>{ANSWER}", ("B", False), None),
    ("<thinking>or <answer>?</thinking>" + ANSWER, ("B", False), ("?</thinking><answer>B", False)),
    (THINK + "<tool_call>x</tool_call>", (["malformed_call"], False), None),
    (THINK + "<tool_call>[]</tool_call>", (["malformed_call"], False), None),
    (THINK + CALL.replace("</tool_call>", ""), (None, False), None),
    (
        THINK + '<tool_call>{"action": "choose_frames", "frame_range": [0, 9]}</tool_call>',
        (["malformed_call"], False),
        None,
    ),
    (
        THINK + '<tool_call>{"name": "x", "action": "choose_frames", "frame_range": [0, 9]}</tool_call>',
        (["x"], True),
        None,
    ),
    (
        THINK + '<tool_call>{"action": "choose_frames", "frame_range": {"0": 0, "90": 0}}</tool_call>',
        (["malformed_call"], False),
        None,
    ),
    ("", (None, False), None),
]


def test_turns() -> None:
    for text, strict, reference in TURNS:
        assert summary(parse_turn(text)) == strict
        assert summary(parse_turn_reference(text)) == (strict if reference is None else reference)


@pytest.mark.parametrize("parse", [parse_turn, parse_turn_reference])
def test_arguments_alone_are_arguments(parse: Callable[[str], ParsedTurn]) -> None:
    """The paper's calls hold `arguments`; some models say `parameters`, which other methods take."""
    both = '{"name": "uniform_sample", "arguments": {"start_frame": 5}, "parameters": {"start_frame": 900}}'
    (call,) = parse(f"{THINK}<tool_call>{both}</tool_call>").calls
    assert call.arguments == {"start_frame": 5}
    alone = '{"name": "uniform_sample", "parameters": {"start_frame": 900}}'
    (call,) = parse(f"{THINK}<tool_call>{alone}</tool_call>").calls
    assert call.arguments == {}


def test_the_thought_is_read() -> None:
    for parse in (parse_turn, parse_turn_reference):
        assert parse(f"<thinking> where? </thinking>{CALL}").thought == "where?"
        assert parse(CALL).thought is None


PIECES = st.sampled_from(
    ["<thinking>", "</thinking>", "<tool_call>", "</tool_call>", "<answer>", "</answer>", CALL, ANSWER, THINK, "{", "x"]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    for parse in (parse_turn, parse_turn_reference):
        parsed = parse(text)
        assert parsed.answer is None or not parsed.calls
        assert not parsed.well_formed or bool(parsed.calls) != (parsed.answer is not None)
