"""What VideoZoomer's grammar reads out of a turn, strictly and as the published environment does."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.turns.tagged import answer, video_zoom
from verl_video_tools.core.types import FrameRecord, ImagePart, ParsedTurn, ToolCall, content_text
from verl_video_tools.methods.videozoomer.grammar import labelled_frames, parse_turn, parse_turn_reference


def summary(parsed: ParsedTurn) -> object:
    """Answer text, arguments of the one good call, error codes of bad ones, or None."""
    if parsed.answer is not None:
        assert not parsed.calls
        return parsed.answer
    if not parsed.calls:
        return None
    if parsed.calls[0].error is None:
        (call,) = parsed.calls
        assert call.name == "video_zoom"
        return dict(call.arguments)
    return [call.error.code for call in parsed.calls if call.error is not None]


GOOD = {"segment": [4, 6], "fps": 2}
MALFORMED = ["malformed_call"]


REQUESTS = [
    # body                                               strict     reference  well-formed (strict)
    ('{"segment": [4, 6], "fps": 2}', GOOD, GOOD, True),
    (' {"segment": [4, 6], "fps": 2}\n', GOOD, GOOD, True),
    ('{"segment": [4, 6],\n"fps": 2}', GOOD, MALFORMED, True),
    ('see {"segment": [4, 6], "fps": 2} please', GOOD, GOOD, False),
    ('{"segment": [4, 6], "fps": 2} {"fps": 1}', MALFORMED, MALFORMED, False),
    ('{"segment": [4, 6], "fps": {"n": 2}}', MALFORMED, MALFORMED, False),
    ('{"segment": [[4], 6], "fps": 2}', MALFORMED, {"segment": [[4], 6], "fps": 2}, False),  # refused by the tool
    ('{"segment": [4, 6]}', {"segment": [4, 6]}, {"segment": [4, 6]}, True),
    ('{"segment": [4, 6], "fps": NaN}', MALFORMED, MALFORMED, False),
    ('{"segment": [4, 1e999], "fps": 2}', MALFORMED, MALFORMED, False),
    ("{'segment': [4, 6], 'fps': 2}", MALFORMED, MALFORMED, False),
    ("[4, 6]", MALFORMED, MALFORMED, False),
    ("4 to 6", MALFORMED, MALFORMED, False),
    ("", MALFORMED, MALFORMED, False),
    ("}{", MALFORMED, MALFORMED, False),
    ('{"a":' * 5000, MALFORMED, MALFORMED, False),
    ('{"segment": ' + "[" * 5000 + "}", MALFORMED, MALFORMED, False),
    ('{"fps": ' + "9" * 5000 + "}", MALFORMED, MALFORMED, False),
    ('{"segment": [4, 6], "fps": "\\ud800"}', MALFORMED, MALFORMED, False),  # half a pair: no UTF-8
    ('{"segment": [4, 6], "fps": 2' + " " * 4000 + "}", MALFORMED, MALFORMED, False),
]


def test_requests() -> None:
    for body, strict, reference, well_formed in REQUESTS:
        assert summary(parse_turn(video_zoom(body))) == strict
        assert summary(parse_turn_reference(video_zoom(body))) == reference
        assert parse_turn(video_zoom(body)).well_formed is well_formed


TURNS = [
    (answer("B"), "B", "B", True),
    (f"\n{answer(' B ')}\n", "B", "B", True),
    ("<think>so</think> Clearly: <answer>B</answer>", "B", "B", True),
    (answer("B") + " done", "B", "B", False),
    ("well " + answer("B"), "B", "B", False),
    ("<answer>B</answer>", "B", "B", False),
    ("<answer>B</answer><think>so</think>", "B", "B", False),
    (answer("A") + "<answer>B</answer>", "B", "B", False),
    ("<think>so</think><answer>B", None, "B", False),
    (answer("A") + "<answer>B", "A", "B", False),
    (answer(""), None, None, False),
    ("<think>so</think>", None, None, False),
    ("B", None, None, False),
    ("", None, None, False),
    ("<think>so</think><tool_response>x</tool_response><answer>B</answer>", "B", "B", False),
    ("<think>a</think><think>b</think><answer>B</answer>", "B", "B", False),
    ("<think>maybe <answer>A</answer></think>", "A", "A", False),
    ("<think>the <answer> tag takes 3 or 4</think><answer>4</answer>", "4", "4", False),
    ("<think>to close with </answer></think><answer>4</answer>", "4", "4", False),
    (answer("4") + " and </answer>", "4", "4", False),
    (video_zoom('{"segment": [4, 6], "fps": 2}') + "<answer>B</answer>", GOOD, GOOD, False),
    ("<answer>B</answer>" + video_zoom('{"segment": [4, 6], "fps": 2}'), GOOD, GOOD, False),
    ("<think>never closed " + video_zoom('{"segment": [4, 6], "fps": 2}')[17:], GOOD, GOOD, False),
    (video_zoom('{"segment": [4, 6], "fps": 2}') * 2, ["multiple_calls"] * 2, MALFORMED, False),
    (video_zoom('{"segment": [4, 6], "fps": 2}') + video_zoom("no"), ["multiple_calls"] * 2, GOOD, False),
    ("<video_zoom>" + answer("B"), "B", "B", False),
]


def test_turns() -> None:
    for text, strict, reference, well_formed in TURNS:
        assert summary(parse_turn(text)) == strict
        assert summary(parse_turn_reference(text)) == reference
        assert parse_turn(text).well_formed is well_formed


def test_thought() -> None:
    assert parse_turn("<think> at 4.00\nand 6.00 </think><answer>B</answer>").thought == "at 4.00\nand 6.00"
    assert parse_turn("<answer>B</answer>").thought is None
    assert parse_turn("<think>a</think><think>b</think>").thought is None


TEXTS = st.text(max_size=40) | st.lists(
    st.sampled_from(
        [
            *["<think>", "</think>", "<video_zoom>", "</video_zoom>", "<answer>", "</answer>", "<tool_response>"],
            *['{"segment": [4, 6], "fps": 2}', "{", "}", "[", "]", '"segment"', ":", "1e999", "NaN", "null", "\n", "B"],
        ]
    ),
    max_size=14,
).map("".join)


@pytest.mark.parametrize("parse", [parse_turn, parse_turn_reference])
@given(text=TEXTS)
def test_any_text_parses(parse: Any, text: str) -> None:
    parsed = parse(text)
    assert isinstance(parsed, ParsedTurn)
    assert parsed.answer is None or (parsed.answer.strip() and not parsed.calls)
    assert all(isinstance(call, ToolCall) for call in parsed.calls)
    assert bool(parsed.calls) == ("</video_zoom>" in text.partition("<video_zoom>")[2])
    assert not parsed.well_formed or (parsed.thought is not None and (parsed.answer or parsed.calls))
    json.dumps([dict(call.arguments) for call in parsed.calls], allow_nan=False)  # the record is JSON


@given(
    start=st.floats(0, 1e5),
    length=st.floats(0, 1e4),
    fps=st.floats(0.1, 60),
    thought=st.text("ab \n.,[]{}", max_size=20),
)
def test_a_turn_written_by_the_rules_is_read_as_written(start: float, length: float, fps: float, thought: str) -> None:
    request = {"segment": [start, start + length], "fps": fps}
    text = f"<think>{thought}</think><video_zoom>{json.dumps(request)}</video_zoom>"
    for parse in (parse_turn, parse_turn_reference):
        parsed = parse(text)
        assert summary(parsed) == request
        assert parsed.well_formed and parsed.thought == thought.strip()


@pytest.mark.parametrize("parse", [parse_turn, parse_turn_reference])
def test_long_repetitions_are_read_before_the_timeout(parse: Any) -> None:
    parse("<think>" * 50_000 + "<video_zoom>" * 50_000 + "<answer>" * 50_000)
    parse("<video_zoom>" + "{" * 400_000 + "</video_zoom>")
    parse("<video_zoom>" + "{}" * 200_000 + "</video_zoom>")


def images(*seconds: float) -> list[ImagePart]:
    return [ImagePart(FrameRecord(round(30 * time), time, 2, 2)) for time in seconds]


def test_frames_follow_their_labels() -> None:
    assert content_text(labelled_frames(images(342, 342.5))) == "<frame0_time342.00s><image><frame1_time342.50s><image>"
