"""What FrameThinker's grammar reads out of a turn, strictly and as the published environment does."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.types import ParsedTurn, ToolCall
from verl_video_tools.methods.framethinker.grammar import parse_turn, parse_turn_reference
from verl_video_tools.methods.framethinker.method import GetFrameNumber
from verl_video_tools.methods.toolkit.grammar import find_blocks


def turn(action: str, thought: str = "so") -> str:
    return f"<think>{thought}</think><action>{action}</action>"


def summary(parsed: ParsedTurn) -> object:
    """Answer text, (name, arguments) of the one good call, (name, error code) of bad ones, or None."""
    if parsed.answer is not None:
        assert not parsed.calls
        return parsed.answer
    if not parsed.calls:
        return None
    if parsed.calls[0].error is None:
        (call,) = parsed.calls
        return call.name, dict(call.arguments)
    return [(call.name, call.error.code) for call in parsed.calls if call.error is not None]


def choose(start: int, end: int) -> tuple[str, dict[str, int]]:
    return "choose_frames", {"start_frame": start, "end_frame": end}


def get(time_text: str) -> tuple[str, dict[str, str]]:
    return "get_frame_number", {"time": time_text}


BAD_CHOOSE = [("choose_frames", "malformed_call")]
BAD_GET = [("get_frame_number", "malformed_call")]
UNKNOWN = [("unknown", "malformed_call")]


ACTIONS = [
    # action                                        strict                reference
    ("choose frames between 100 and 200", choose(100, 200), choose(100, 200)),
    ("  choose frames between 100 and 200\n", choose(100, 200), choose(100, 200)),
    ("choose frames between 100 and 200.", choose(100, 200), choose(100, 200)),
    ("choose frames between 100 and 200, please", choose(100, 200), choose(100, 200)),
    ("choose frames between 0100 and 0200", choose(100, 200), choose(100, 200)),
    ("choose frames between 100 and 200.5", BAD_CHOOSE, choose(100, 200)),
    ("choose frames between 100 and 200x", BAD_CHOOSE, choose(100, 200)),
    ("now choose frames between 100 and 200", UNKNOWN, choose(100, 200)),
    ("choose frames  between 100 and 200", BAD_CHOOSE, BAD_CHOOSE),
    ("choose frames between 1,400 and 1,500", BAD_CHOOSE, BAD_CHOOSE),
    ("choose frames between -5 and 200", BAD_CHOOSE, BAD_CHOOSE),
    ("choose frames between " + "9" * 5000 + " and 3", BAD_CHOOSE, choose(10**18, 3)),
    ("choose frames between 3 and " + "0" * 5000 + "20", BAD_CHOOSE, choose(3, 20)),
    ("Choose frames between 100 and 200", UNKNOWN, UNKNOWN),
    ("get frame number at time 0:34", get("0:34"), get("0:34")),
    ("get frame number at time\n 125:07 ", get("125:07"), get("125:07")),
    ("get frame number at time 0:34 please", get("0:34"), get("0:34")),
    ("get frame number at time 0:34.", BAD_GET, get("0:34.")),
    ("get frame number at time 1234:56", BAD_GET, get("1234:56")),
    ("get frame number at time 12:5", BAD_GET, get("12:5")),
    ("get frame number at time 1:02:03", BAD_GET, get("1:02:03")),
    ("get frame number at time 34", BAD_GET, get("34")),
    ("get frame number at time", BAD_GET, BAD_GET),
    ("get frame number at time 0:34, then choose frames between 1 and 90", BAD_GET, get("0:34,")),
    ("get frame number at time 0:34 then choose frames between 1 and 90", get("0:34"), get("0:34")),
    ("then get frame number at time 0:34 or choose frames between 1 and 90", UNKNOWN, choose(1, 90)),
    ("output answer: B", "B", "B"),
    ("output answer:B", "B", "B"),
    ("output answer:\nB", "B", "B"),
    ("output answer: B. The dog", "B. The dog", "B. The dog"),
    ("output answer:", UNKNOWN, UNKNOWN),
    ("output answer: \n ", UNKNOWN, UNKNOWN),
    ("output answer B", UNKNOWN, UNKNOWN),
    ("the output answer: B", UNKNOWN, UNKNOWN),
    ("", UNKNOWN, UNKNOWN),
]


def test_actions() -> None:
    for action, strict, reference in ACTIONS:
        assert summary(parse_turn(turn(action))) == strict
        assert summary(parse_turn_reference(turn(action))) == reference


@pytest.mark.parametrize(
    ("text", "strict", "reference"),
    [
        ("just words", None, None),
        ("<think>so</think>", None, None),
        ("<action>output answer: B", None, None),
        (turn("output answer: B") + turn("output answer: C"), [("unknown", "multiple_calls")], "C"),
        (
            turn("choose frames between 1 and 20") + turn("output answer: B"),
            [("choose_frames", "multiple_calls")],
            "B",
        ),
        (
            turn("choose frames between 1 and 20") + turn("get frame number at time 0:01"),
            [("choose_frames", "multiple_calls"), ("get_frame_number", "multiple_calls")],
            get("0:01"),
        ),
        ("<action>output answer: B</action><think>so</think>", "B", "B"),
        ("hm <think>so</think> then <action>output answer: B</action> ok", "B", "B"),
    ],
)
def test_turns(text: str, strict: object, reference: object) -> None:
    assert summary(parse_turn(text)) == strict
    assert summary(parse_turn_reference(text)) == reference


@pytest.mark.parametrize(
    ("text", "thought", "well_formed"),
    [
        (turn("output answer: B", " at 100\nand 200 "), "at 100\nand 200", True),
        ("\n" + turn("choose frames between 1 and 20") + " \n", "so", True),
        ("<think>so</think>\n\n<action>output answer: B</action>", "so", True),
        ("<action>output answer: B</action><think>so</think>", "so", False),
        ("<action>output answer: B</action>", None, False),
        ("<think>a</think><think>b</think><action>output answer: B</action>", None, False),
        ("well " + turn("output answer: B"), "so", False),
        (turn("output answer: B") + " done", "so", False),
        (turn("jump"), "so", False),
        (turn("output answer: B") * 2, None, False),
        ("<think>never closed <action>output answer: B</action>", None, False),
    ],
)
def test_thought_and_form(text: str, thought: str | None, well_formed: bool) -> None:
    parsed = parse_turn(text)
    assert (parsed.thought, parsed.well_formed) == (thought, well_formed)


TEXTS = st.text(max_size=40) | st.lists(
    st.sampled_from(
        [
            *["<think>", "</think>", "<action>", "</action>", "choose frames between ", "get frame number at time "],
            *["output answer:", " and ", "0:34", "12", "7:", " ", "\n", "\u0663", "9" * 30],
        ]
    ),
    max_size=14,
).map("".join)


@pytest.mark.parametrize("parse", [parse_turn, parse_turn_reference])
@given(text=TEXTS)
def test_any_text_parses(parse: Callable[[str], ParsedTurn], text: str) -> None:
    parsed = parse(text)
    assert isinstance(parsed, ParsedTurn)
    assert parsed.answer is None or (parsed.answer.strip() and not parsed.calls)
    assert all(isinstance(call, ToolCall) and (call.error or call.arguments) for call in parsed.calls)
    assert not parsed.well_formed or (parsed.thought is not None and (parsed.answer or parsed.calls))


def test_long_repetitions_are_read_before_the_timeout() -> None:
    parse_turn("<think>" * 100_000 + "<action>" * 100_000)


@given(st.lists(st.sampled_from(["<t>", "</t>", "x", "<", "t>"]), max_size=12).map("".join))
def test_blocks_tile_the_text(text: str) -> None:
    position = 0
    for block in find_blocks(text, "t"):
        assert position <= block.start < block.end
        assert text[block.start : block.end] == f"<t>{block.inner}</t>"
        assert "</t>" not in block.inner
        position = block.end
    assert "</t>" not in text[position:].partition("<t>")[2]


def test_frame_number_is_one_sentence() -> None:
    in_words = GetFrameNumber.description.result_text
    assert in_words is not None
    assert in_words({"time": "0:34"}, {"frame_number": 815}) == "Frame number at time 0:34 is: 815."
