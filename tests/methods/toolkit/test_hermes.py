"""What the Hermes grammar reads out of a turn, and how tools and their replies are written."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.types import ParsedTurn
from verl_video_tools.methods import toolkit
from verl_video_tools.methods.longvt.grammar import parse_turn_reference
from verl_video_tools.methods.toolkit.grammar import (
    find_blocks,
    has_words_outside,
    parse_calls,
    parse_turn,
    tags_in_order,
    tool_schema,
)

THINK = "<think>so</think>"
CALL = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 2.5}}</tool_call>'
OTHER = '<tool_call>{"name": "other", "arguments": {}}</tool_call>'
BROKEN = '<tool_call>{"name": "crop_video", "arguments": {</tool_call>'
ANSWER = "<answer> a red scarf\n</answer>"
ARGUMENTS = {"start_time": 1, "end_time": 2.5}
GOOD = ("crop_video", None)
BAD = ("unknown", "malformed_call")


def summary(parsed: ParsedTurn) -> tuple[list[tuple[str, str | None]], str | None, bool]:
    """(name, error code) of each call; the answer; well_formed."""
    calls = [(call.name, call.error and call.error.code) for call in parsed.calls]
    return calls, parsed.answer, parsed.well_formed


@pytest.mark.parametrize(
    ("text", "strict", "reference"),
    [
        # turn                              calls, answer, well formed
        (THINK + CALL, ([GOOD], None, True), ([GOOD], None, True)),
        (f"\n{THINK}\n{CALL}\n", ([GOOD], None, True), ([GOOD], None, True)),
        (THINK + CALL + CALL, ([GOOD, GOOD], None, True), ([GOOD, GOOD], None, True)),
        (THINK + ANSWER, ([], "a red scarf", True), ([], "a red scarf", True)),
        (THINK + "so look" + CALL, ([GOOD], None, True), ([GOOD], None, True)),
        (THINK + "and so" + ANSWER, ([], "a red scarf", True), ([], "a red scarf", True)),
        (CALL, ([GOOD], None, False), ([GOOD], None, False)),
        (ANSWER, ([], "a red scarf", False), ([], "a red scarf", False)),
        (THINK, ([], None, False), ([], None, False)),
        ("", ([], None, False), ([], None, False)),
        ("well, " + THINK + CALL, ([GOOD], None, False), ([GOOD], None, False)),
        (THINK + ANSWER + " done", ([], "a red scarf", False), ([], "a red scarf", False)),
        (THINK + ANSWER + "<answer>blue</answer>", ([], "blue", False), ([], "blue", False)),
        (THINK + THINK + ANSWER, ([], "a red scarf", False), ([], "a red scarf", False)),
        ("<think>so" + CALL, ([GOOD], None, False), ([GOOD], None, False)),
        (CALL + THINK, ([GOOD], None, False), ([GOOD], None, False)),
        (THINK + "<answer></answer>", ([], "", True), ([], "", True)),
        # What comes after a call was written without its result.
        (
            THINK + CALL + "<tool_response>a red scarf</tool_response>" + THINK + ANSWER,
            ([GOOD], None, False),
            ([GOOD], None, False),
        ),
        # Tags that a thought mentions.
        (f"<think>I write {CALL} soon</think>" + ANSWER, ([], "a red scarf", False), ([GOOD], None, False)),
        ("<think>a <tool_call> now</think>" + CALL, ([GOOD], None, False), ([], None, False)),
        # One block that is no JSON costs the turn all its calls, as published.
        (THINK + BROKEN, ([BAD], None, False), ([], None, False)),
        (THINK + BROKEN + CALL, ([BAD, GOOD], None, False), ([], None, False)),
        (THINK + BROKEN + ANSWER, ([BAD], None, False), ([], "a red scarf", False)),
        (THINK + OTHER, ([("other", None)], None, True), ([], None, False)),
        (THINK + OTHER + CALL, ([("other", None), GOOD], None, True), ([GOOD], None, True)),
    ],
)
def test_turns(text: str, strict: object, reference: object) -> None:
    assert summary(parse_turn(text)) == strict
    assert summary(parse_turn_reference(text)) == reference


def test_what_a_turn_says() -> None:
    parsed = parse_turn(f"<think>\nat the end </think>{CALL}")
    assert parsed.thought == "at the end"
    assert [(call.name, call.arguments) for call in parsed.calls] == [("crop_video", ARGUMENTS)]


@pytest.mark.parametrize(
    "payload",
    [
        '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 2.5}}',
        '\n{"name": "crop_video",\n "arguments": {"start_time": 1, "end_time": 2.5}}\n',
        '{"arguments": {"start_time": 1, "end_time": 2.5}, "name": "crop_video", "id": 7}',
        '{"name": "crop_video", "parameters": {"start_time": 1, "end_time": 2.5}}',
    ],
)
def test_forms_of_a_call(payload: str) -> None:
    (call,) = parse_calls(f"<tool_call>{payload}</tool_call>")
    assert (call.name, call.arguments, call.error) == ("crop_video", ARGUMENTS, None)


def test_a_call_without_arguments() -> None:
    (call,) = parse_calls('<tool_call>{"name": "look"}</tool_call>')
    assert (call.name, call.arguments, call.error) == ("look", {}, None)


@pytest.mark.parametrize(
    ("payload", "name", "said"),
    [
        ("", "unknown", "not a JSON object"),
        ("crop_video(1, 2)", "unknown", "not a JSON object"),
        ("[]", "unknown", "it is a list"),
        ("null", "unknown", "it is a NoneType"),
        ("{'name': 'crop_video'}", "unknown", "not a JSON object"),
        ('{"arguments": {}}', "unknown", "no name, got None"),
        ('{"name": 7}', "unknown", "no name, got 7"),
        ('{"name": ""}', "unknown", "no name, got ''"),
        ('{"name": "crop_video", "arguments": [1, 2]}', "crop_video", r"must be a JSON object, got \[1, 2\]"),
        ('{"name": "crop_video", "arguments": "{}"}', "crop_video", "must be a JSON object, got '{}'"),
        ('{"name": "crop_video", "arguments": null}', "crop_video", "must be a JSON object, got None"),
        ('{"name": "crop_video", "arguments": {"start_time": NaN}}', "unknown", "NaN is not a JSON number"),
        ('{"name": "crop_video", "arguments": {"start_time": 1e999}}', "unknown", "1e999 is too large"),
        ('{"name": "crop_video", "arguments": {"start_time": ' + "9" * 5000 + "}}", "unknown", "too long"),
        ('{"name": "' + "[" * 100 + '"}', "unknown", "too deep"),
        ('{"name": "crop_video", "arguments": {"a": "\\ud800"}}', "unknown", "surrogates not allowed"),
    ],
)
def test_malformed_calls(payload: str, name: str, said: str) -> None:
    (call,) = parse_calls(f"<tool_call>{payload}</tool_call>")
    assert call.name == name
    assert str(call.error).startswith("malformed_call: ")
    assert re.search(said, str(call.error))
    assert len(str(call.arguments["text"])) <= 200


TAGS = st.sampled_from(
    [THINK, CALL, OTHER, BROKEN, ANSWER, "<think>", "</think>", "<tool_call>", "</tool_call>", "<answer>", "</answer>"]
)


@given(st.lists(st.one_of(TAGS, st.text(max_size=20)), max_size=12).map("".join))
def test_parsing_never_raises(text: str) -> None:
    for parsed in (parse_turn(text), parse_turn_reference(text)):
        assert not (parsed.calls and parsed.answer is not None)
        assert not parsed.well_formed or parsed.calls or parsed.answer is not None
    has_words_outside(text)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_any_payload_gives_a_record_that_can_be_written(value: object) -> None:
    payload = json.dumps({"name": "crop_video", "arguments": {"start_time": value}})
    (call,) = parse_calls(f"<tool_call>{payload}</tool_call>")
    json.dumps(
        [call.name, dict(call.arguments), call.error and str(call.error)], allow_nan=False, ensure_ascii=False
    ).encode()


class CountedText(str):
    """Counts the characters that are looked at for a tag."""

    num_looked_at = 0

    def find(self, tag: str, start: int = 0) -> int:  # type: ignore[override]
        found = super().find(tag, start)
        self.num_looked_at += (len(self) if found < 0 else found + len(tag)) - start
        return found


@pytest.mark.parametrize(
    ("piece", "num_blocks"),
    [
        ("<tool_call>", 0),
        ("</tool_call>", 0),
        ("<tool_call>{</tool_call>", 1),
        ("<tool_call><tool_call></tool_call>", 1),
    ],
)
def test_each_character_is_looked_at_once_for_either_tag(piece: str, num_blocks: int) -> None:
    """However long a policy goes on with the same."""
    text = CountedText(piece * 1000)
    assert len(find_blocks(text, "tool_call")) == 1000 * num_blocks
    assert text.num_looked_at <= 2 * len(text)


@pytest.mark.parametrize(
    ("piece", "num_calls"), [("<tool_call>", 0), ("<tool_call>{</tool_call>", 1), ("<think>", 0), ("<answer>", 0)]
)
def test_a_turn_that_repeats_a_tag_for_ever_is_read(piece: str, num_calls: int) -> None:
    turn = parse_turn(piece * 10_000)
    assert len(turn.calls) == 10_000 * num_calls and all(call.error is not None for call in turn.calls)
    assert (turn.thought, turn.answer, turn.well_formed) == (None, None, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(THINK + CALL, False), (f" {THINK}\n{ANSWER} ", False), (THINK + "so" + ANSWER, True), (THINK + "<answer>", True)],
)
def test_words_outside(text: str, expected: bool) -> None:
    assert has_words_outside(text) is expected


def test_order_of_tags() -> None:
    assert tags_in_order(THINK + CALL + CALL)
    for text in (THINK + CALL + ANSWER, THINK + ANSWER + CALL, THINK + CALL + "</tool_call>", THINK + CALL + THINK):
        assert not tags_in_order(text)


def test_schema() -> None:
    schema = tool_schema("look", "Looks.", {"t": ("number", "Seconds."), "how": ("string", "How.")}, optional=["how"])
    assert schema == {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks.",
            "parameters": {
                "type": "object",
                "properties": {
                    "t": {"type": "number", "description": "Seconds."},
                    "how": {"type": "string", "description": "How."},
                },
                "required": ["t"],
            },
        },
    }


def test_packages_read_several_calls_of_a_turn_by_the_toolkit() -> None:
    turn = toolkit.parse_turn(f"{THINK}{CALL}<tool_call>broken</tool_call>{CALL}<answer>B</answer>")
    assert [call.error is None for call in turn.calls] == [True, False, True]
    assert turn.answer is None and turn.calls == toolkit.parse_calls(f"{CALL}<tool_call>broken</tool_call>{CALL}")
