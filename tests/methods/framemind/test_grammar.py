"""FrameMind's grammar: calls as text, and the two notions of validity. J with a number is an acceptance case."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_video_tools.methods.framemind.grammar import is_valid_transcript, num_summaries, parse_turn

LOOK = "<think>a</think><tool_call>VideoClip(15.5, 20.0)</tool_call><turn_sum>b</turn_sum>"
ANSWER = "<think>a</think><answer>B</answer>"


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("FrameAt(12.5)", "FrameAt", {"t": 12.5}),
        (" FrameAt ( t = 12 )\n", "FrameAt", {"t": 12.0}),
        ("FrameAt(-1)", "FrameAt", {"t": -1.0}),
        ("FrameAt(.5)", "FrameAt", {"t": 0.5}),
        ("VideoClip(15.5, 20.0)", "VideoClip", {"t_start": 15.5, "t_end": 20.0}),
        ("VideoClip(15.5,t_end=20.)", "VideoClip", {"t_start": 15.5, "t_end": 20.0}),
        ("VideoClip(t_end=20, t_start=15)", "VideoClip", {"t_start": 15.0, "t_end": 20.0}),
    ],
)
def test_calls(text: str, name: str, arguments: dict[str, float]) -> None:
    (call,) = parse_turn(f"<think>x</think><tool_call>{text}</tool_call>").calls
    assert (call.name, call.arguments, call.error) == (name, arguments, None)


@pytest.mark.parametrize(
    ("text", "name", "code", "named"),
    [
        pytest.param("FrameAt(abc)", "FrameAt", "malformed_call", "'abc'", id="no number"),
        pytest.param("frame_at(3)", "frame_at", "unknown_tool", "'frame_at'", id="unknown"),
        pytest.param("FrameAt(3", "unknown", "malformed_call", "'FrameAt(3'", id="parenthesis"),
        ("FrameAt()", "FrameAt", "malformed_call", "''"),
        ("FrameAt(1, 2)", "FrameAt", "malformed_call", "1 numbers, got 2"),
        ("VideoClip(1)", "VideoClip", "malformed_call", "2 numbers, got 1"),
        ("VideoClip(t_end=2, 3)", "VideoClip", "malformed_call", "once each"),
        ("FrameAt(seconds=3)", "FrameAt", "malformed_call", "takes t once"),
        ("FrameAt(0:12)", "FrameAt", "malformed_call", "'0:12'"),
        ("FrameAt(12s)", "FrameAt", "malformed_call", "'12s'"),
        ('FrameAt("12")', "FrameAt", "malformed_call", "12"),
        ("FrameAt(1e5)", "FrameAt", "malformed_call", "1e5"),
        ("FrameAt(nan)", "FrameAt", "malformed_call", "nan"),
        ("FrameAt(1) FrameAt(2)", "unknown", "malformed_call", "one function call"),
        ("", "unknown", "malformed_call", "''"),
    ],
)
def test_unreadable_calls(text: str, name: str, code: str, named: str) -> None:
    parsed = parse_turn(f"<think>x</think><tool_call>{text}</tool_call><turn_sum>y</turn_sum>")
    (call,) = parsed.calls
    assert call.name == name
    assert str(call.error).startswith(f"{code}: ") and named in str(call.error)
    assert not parsed.well_formed


def test_a_turn() -> None:
    parsed = parse_turn(LOOK)
    assert (parsed.thought, parsed.summary, parsed.answer, parsed.well_formed) == ("a", "b", None, True)
    parsed = parse_turn(f"{ANSWER}<answer> C </answer>")
    assert (parsed.answer, parsed.well_formed) == ("C", False)
    talk = parse_turn("<think>use <tool_call>FrameAt(1)</tool_call> or <answer>B</answer></think>")
    assert (talk.calls, talk.answer, talk.well_formed) == ((), None, False)
    for text in (LOOK, ANSWER, "<think>a</think>\n<turn_sum>b</turn_sum>\n"):
        assert parse_turn(text).well_formed
    for text in ("", "<think>a</think>", "<turn_sum>b</turn_sum>", LOOK + "words"):
        assert not parse_turn(text).well_formed


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        pytest.param(ANSWER, True, id="a thought and an answer"),
        pytest.param(f"{ANSWER} I hope", False, id="text after"),
        pytest.param(f"{ANSWER}<answer>C</answer>", False, id="two answers"),
        pytest.param("<think>a<answer>B</answer>", False, id="open thought"),
        pytest.param("<answer>B</answer><think>a</think>", False, id="answer first"),
        pytest.param("<think>a</think> <think>b</think>\n<answer>B</answer>\n", True, id="several thoughts"),
        pytest.param("<answer>B</answer>", False, id="no thought"),
        pytest.param(f"{LOOK}\n{LOOK}\n{ANSWER}", True, id="several turns with calls and summaries"),
        pytest.param(f"{LOOK} words {ANSWER}", False, id="words between"),
        pytest.param(f"{LOOK}<turn_sum>{ANSWER}", False, id="open summary"),
        pytest.param(LOOK, False, id="no answer"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_format_of_a_rollout(text: str, valid: bool) -> None:
    assert is_valid_transcript(text) is valid


def test_summaries() -> None:
    assert num_summaries(f"{LOOK}{LOOK}<think><turn_sum>talk</turn_sum></think><turn_sum>open") == 2


TAGS = [f"<{slash}{tag}>" for tag in ("think", "tool_call", "turn_sum", "answer") for slash in ("", "/")]
PIECES = st.sampled_from([*TAGS, "FrameAt(", "VideoClip(1,", "2)", "=", " ", "é", "."])


@settings(max_examples=50)
@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    parsed = parse_turn(text)
    assert is_valid_transcript(text) <= (parsed.answer is not None)
    assert all(call.error or set(call.arguments) <= {"t", "t_start", "t_end"} for call in parsed.calls)
