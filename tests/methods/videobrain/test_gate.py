"""VideoBrain's format gate under scripted policies, strict and as published.

J with a number names one of the acceptance cases that the project started from. The video has 3000 frames at 30 per
second.
"""

import pytest

from tests.methods.videobrain.scripted import BROKEN, LEGACY, RIGHT_WITH_A_CALL, WRONG_WITH_A_CALL, run
from tests.turns.tagged import tool_call
from tests.turns.videobrain import answer, clip, think, uniform
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import CallError, CallErrorCode
from verl_video_tools.core.types import CallRecord
from verl_video_tools.methods import get_method
from verl_video_tools.methods.videobrain.grammar import record_gate, reference_text_gate


@pytest.mark.parametrize(
    ("turns", "num_calls"),
    [
        pytest.param([answer()], 0, id="no call"),
        pytest.param([uniform(0, 100), answer()], 1, id="one call"),
        pytest.param([*(uniform(start, start + 100) for start in range(0, 500, 100)), answer()], 5, id="five calls"),
        pytest.param([uniform(0, 100), answer("C")], 1, id="a wrong answer"),
        pytest.param([uniform(10, 100), uniform(11, 102), answer()], 2, id="both ends a frame or two apart"),
        pytest.param([uniform(10, 100), uniform(12, 100), answer()], 2, id="one end two frames apart"),
        pytest.param([clip(0, 100, "dog"), clip(200, 400, "Dog"), answer()], 2, id="a prompt in other case"),
        pytest.param([clip(0, 100, "dog"), uniform(0, 100), answer()], 2, id="another tool on the same segment"),
        pytest.param([uniform(0, 100, num_frame=20), answer()], 1, id="an argument too many, ignored"),
        pytest.param(["hello " + uniform(0, 100) + " well", "so " + answer() + " ok"], 1, id="text around the tags"),
    ],
)
async def test_the_gate_lets_pass(make_video: MakeVideo, turns: list[str], num_calls: int) -> None:
    for compat in ("strict", "reference"):
        trajectory, reward = await run(make_video(), turns, compat)
        assert reward["format"] == 0.05, compat
        assert get_method("videobrain", compat=compat).gate(trajectory).num_calls == num_calls, compat
        assert len(trajectory.executed_calls()) == num_calls, compat


@pytest.mark.parametrize(
    ("turns", "stop"),
    [
        pytest.param([uniform(0, 100), uniform(0, 100), answer()], "answer", id="the same call twice"),
        pytest.param([uniform(10, 100), uniform(11, 101), answer()], "answer", id="within a frame"),
        pytest.param([uniform(9, 90), uniform(200, 300), uniform(10, 91), answer()], "answer", id="any earlier one"),
        pytest.param([clip(0, 100, "dog"), clip(200, 400, "dog"), answer()], "answer", id="the same prompt twice"),
        pytest.param(
            [clip(0, 100, "dog"), clip(200, 400, " dog "), answer()], "answer", id="the same prompt but for white space"
        ),
        pytest.param([uniform(0, 100)], "script_exhausted", id="no answer"),
        pytest.param([think("<answer>B</answer>", "  ")], "answer", id="blank thought"),
        pytest.param([answer(" \n")], "no_action", id="blank answer"),
        pytest.param(["<answer>B</answer>"], "answer", id="an answer without a thought"),
        pytest.param(
            [uniform(0, 100) + "<answer>B</answer>"], "script_exhausted", id="a call and an answer after one thought"
        ),
        pytest.param([uniform(100, 100), answer()], "invalid_action", id="an empty segment"),
        pytest.param([BROKEN, answer()], "invalid_action", id="malformed JSON"),
        pytest.param([think(tool_call("zoom")), answer()], "invalid_action", id="unknown tool"),
        pytest.param(
            [think("<tool_call>[1, 2]</tool_call>"), answer()], "invalid_action", id="a JSON list for an object"
        ),
        pytest.param(
            [think('<tool_call>{"name": "uniform_sample", "arguments": null}</tool_call>'), answer()],
            "invalid_action",
            id="arguments null",
        ),
        pytest.param([clip(0, 100, " "), answer()], "invalid_action", id="blank prompt"),
        pytest.param([uniform(-1, 100), answer()], "invalid_action", id="a negative start ends it in the environment"),
        pytest.param(
            [think("<answer>B</answer>", "I should emit <answer>")], "answer", id="a thought with a literal tag"
        ),
        pytest.param(["so what"], "no_action", id="neither a call nor an answer"),
        pytest.param([uniform(0, 100), answer() + answer("A") + "<answer>"], "answer", id="unbalanced tags"),
    ],
)
async def test_the_gate_refuses(make_video: MakeVideo, turns: list[str], stop: str) -> None:
    """Every component is 0 then, whatever the answer."""
    for compat in ("strict", "reference"):
        trajectory, reward = await run(make_video(), turns, compat)
        assert reward == {"score": 0.0, "accuracy": 0.0, "format": 0.0, "behavior": 0.0}, compat
        assert trajectory.stop_reason == stop, compat


@pytest.mark.parametrize(
    ("turns", "strict", "reference"),
    [
        pytest.param(
            [LEGACY, answer()], ("invalid_action", 0.0), ("invalid_action", 0.0), id="an action object of FrameThinker"
        ),
        pytest.param(
            [think() + uniform(0, 100) + clip(0, 100, "dog"), answer()],
            ("invalid_action", 0.0),
            ("answer", 0.0),
            id="three thoughts for two calls",
        ),
        pytest.param(
            [uniform(0, 100) + clip(0, 100, "dog"), answer()],
            ("invalid_action", 0.0),
            ("answer", 1.05),
            id="two calls in one turn: both count, the last is executed",
        ),
        pytest.param([clip(0, 100, 5), answer()], ("invalid_action", 0.0), ("answer", 0.0), id="a number for a prompt"),
        pytest.param(
            [uniform(2990, 9999), answer()], ("invalid_action", 0.0), ("answer", 1.05), id="an end beyond the video"
        ),
        pytest.param(
            [uniform("5", 105.9), answer()],
            ("invalid_action", 0.0),
            ("answer", 1.05),
            id="a start in quotes, an end with a fraction",
        ),
        pytest.param([answer("C") + answer("B")], ("answer", 0.0), ("answer", 1.55), id="two answers in one turn"),
        pytest.param(
            ["<answer>B</answer>" + think()], ("answer", 0.0), ("answer", 1.55), id="the thought after the answer"
        ),
        pytest.param(
            [*(uniform(start, start + 100) for start in range(0, 500, 100)), uniform(0, 900) + answer()],
            ("max_turns", 0.0),
            ("max_turns", 1.05),
            id="an answer beside a sixth call",
        ),
    ],
)
async def test_where_the_published_gate_or_environment_differs(
    make_video: MakeVideo, turns: list[str], strict: tuple[str, float], reference: tuple[str, float]
) -> None:
    for compat, expected in (("strict", strict), ("reference", reference)):
        trajectory, reward = await run(make_video(), turns, compat)
        assert (trajectory.stop_reason, reward["score"]) == (expected[0], pytest.approx(expected[1])), compat


@pytest.mark.parametrize(
    ("turns", "passes"),
    [
        ([uniform(-1, 100), answer()], True),  # ranges are the environment's business
        ([uniform(0, 100, num_frame=20), answer()], True),
        ([uniform("5", 105.9), answer()], True),
        ([uniform("5.5", 100), answer()], False),
        ([uniform(None, 100), answer()], False),
        ([uniform(float("inf"), 100), answer()], False),
        ([think('<tool_call>{"name": ["uniform_sample"], "arguments": {}}</tool_call>'), answer()], False),
        ([think("<tool_call> </tool_call>"), answer()], False),
        ([think("<tool_call>" + "[" * 100_000 + "</tool_call>"), answer()], False),
        ([clip(0, 100, 5), answer()], False),
        ([], False),
    ],
)
def test_the_published_text_gate_never_raises(turns: list[str], passes: bool) -> None:
    assert (reference_text_gate([(turn, "") for turn in turns]).fault is None) is passes


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (CallErrorCode.OUT_OF_RANGE, "a call that was refused"),
        (CallErrorCode.RETRIEVAL_ERROR, None),
        (CallErrorCode.NOTHING_FOUND, None),
    ],
)
async def test_a_call_counts_as_refused_where_the_policy_is_to_blame(
    make_video: MakeVideo, code: CallErrorCode, fault: str | None
) -> None:
    trajectory, _ = await run(make_video(), [uniform(0, 100), answer()], "strict")
    trajectory.turns[0].calls.append(CallRecord("another_tool", {}, ok=False, error=CallError(code, "so")))
    assert record_gate(trajectory).fault == fault


async def test_without_a_gate_the_answer_counts_whatever_the_form(make_video: MakeVideo) -> None:
    """Ablation "w/o Reward Format Check": form neither earns nor costs anything."""
    repeated = [uniform(0, 100), uniform(0, 100), "<answer>B</answer>"]
    for turns, score in ((repeated, 1.5), (RIGHT_WITH_A_CALL, 1.5), (WRONG_WITH_A_CALL, 0.2), (["so what"], 0.0)):
        for compat in ("strict", "reference"):
            _, reward = await run(make_video(), turns, compat, "f", format_gate=False)
            assert (reward["score"], reward["format"]) == (pytest.approx(score), 0.0), (turns, compat)
    assert (await run(make_video(), repeated, "strict", "f"))[1]["score"] == 0.0
