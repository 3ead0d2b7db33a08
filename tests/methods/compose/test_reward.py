"""Weights and gates against a hand calculation; each term against the record that it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.methods.doubles import StubJudge
from verl_video_tools.core.errors import CallError, CallErrorCode, JudgeError
from verl_video_tools.core.types import (
    AnswerLabel,
    CallRecord,
    FrameRecord,
    Sample,
    StopReason,
    Tile,
    Trajectory,
    Turn,
    VideoInfo,
)
from verl_video_tools.methods.compose import reward as of
from verl_video_tools.methods.compose.grammar import Hermes
from verl_video_tools.methods.compose.parts import TOOLS, read_tool
from verl_video_tools.methods.compose.reward import (
    Reward,
    RewardTerm,
    ScoringContext,
    Term,
    read_reward,
    segment_of_call,
)

VIDEO = VideoInfo(duration_seconds=100.0, num_frames=1000, average_fps=10.0, width=96, height=64)
SAMPLE = Sample("Which?", "A", "v.mp4", "mc", ("a cat", "a dog"), (10.0, 20.0))
OPEN = replace(SAMPLE, question_type="open", ground_truth="a cat", options=())
PARAMETERS = {name: read_tool({"name": name}, "tools[0]").parameters for name in TOOLS}


def frames(*indices: int) -> list[FrameRecord]:
    return [FrameRecord(index, index / 10, 64, 36) for index in indices]


def call(name: str = "crop_video", *, ok: bool = True, shown: tuple[int, ...] = (1, 2), **facts: Any) -> CallRecord:
    error = None if ok else CallError(CallErrorCode.OUT_OF_RANGE, "outside")
    return CallRecord(name, facts, ok, error, frames(*shown) if ok else [], dict(facts) if ok else {})


def rollout(*calls: CallRecord, answer: str | None = "A", sample: Sample = SAMPLE, judge: Any = None) -> ScoringContext:
    """One call per turn, each well-formed, and then the answer."""
    turns = [Turn("<think>a</think><tool_call>{}</tool_call>", calls=[one], well_formed=True) for one in calls]
    if answer is not None:
        text = f"<think>a</think><answer>{answer}</answer>"
        turns.append(Turn(text, answer=answer, well_formed=True))
    stop = StopReason.MAX_TURNS if answer is None else StopReason.ANSWER
    trajectory = Trajectory("compose", "Which?", VIDEO, turns=turns, stop_reason=stop, answer=answer)
    return ScoringContext(trajectory, sample, judge, Hermes(), PARAMETERS)


@dataclass(frozen=True, kw_only=True)
class Fixed(Term):
    number: float

    async def value(self, rollout: ScoringContext) -> float:
        return self.number


@dataclass(frozen=True, kw_only=True)
class Untouched(Term):
    async def value(self, rollout: ScoringContext) -> float:
        raise JudgeError("asked")


values = st.floats(-2, 2, allow_nan=False).map(lambda value: round(value, 3))


@given(
    number=st.tuples(values, values, values),
    weight=st.tuples(values, values, values),
    gate_from=st.one_of(st.none(), values),
)
async def test_gates_multiply_or_open_and_weights_follow(
    number: tuple[float, ...], weight: tuple[float, ...], gate_from: float | None
) -> None:
    gated, second, third = (
        RewardTerm(key=key, term=Fixed(number=number[place]), weight=weight[place], gate=gate)
        for place, (key, gate) in enumerate((("first", ("second", "third")), ("second", ("third",)), ("third", ())))
    )
    gated = replace(gated, gate_from=gate_from)
    components = await Reward((gated, second, third)).components(rollout())
    opened = float(number[0] >= gate_from) if gate_from is not None else min(max(number[0], 0.0), 1.0)
    second_value = number[1] * opened
    third_value = number[2] * opened * min(max(second_value, 0.0), 1.0)
    expected = {
        "first": number[0] * (weight[0] or 1.0),
        "second": second_value * (weight[1] or 1.0),
        "third": third_value * (weight[2] or 1.0),
    }
    assert components == pytest.approx(expected)


async def test_a_closed_gate_asks_no_judge() -> None:
    closed = RewardTerm(key="format", term=Fixed(number=0.0), gate=("accuracy",))
    accuracy = RewardTerm(key="accuracy", term=Untouched())
    assert await Reward((closed, accuracy)).components(rollout()) == {"format": 0.0, "accuracy": 0.0}
    with pytest.raises(JudgeError):
        await Reward((replace(closed, term=Fixed(number=0.1)), accuracy)).components(rollout())


async def test_nothing_is_not_minus_nothing() -> None:
    components = await Reward((RewardTerm(key="calls", term=of.Calls(), weight=-0.5),)).components(rollout())
    assert str(components) == "{'calls': 0.0}"


async def test_several_terms_ask_the_judge_once() -> None:
    judge = StubJudge(AnswerLabel.PARTIAL)
    scored = rollout(answer="cats", sample=OPEN, judge=judge)
    assert await of.Accuracy().value(scored) == 0.5
    assert await of.Accuracy(right_from=1.0).value(scored) == 0.0
    assert await of.Accuracy(right_from=0.5).value(scored) == 1.0
    assert judge.answers == ["cats"]


def read(*terms: dict[str, Any], tools: tuple[str, ...] = ("crop_video",)) -> Reward:
    return read_reward(terms, tools)


def test_gates_come_before_what_they_decide_on() -> None:
    reward = read({"name": "tool"}, {"name": "accuracy", "gate": ["tool"]}, {"name": "format", "gate": "all"})
    assert reward.keys == ("format", "accuracy", "tool")
    assert read({"name": "tool", "weight": 0}, {"name": "accuracy"}).unpaid == ("tool",)


async def test_accuracy() -> None:
    assert await of.Accuracy().value(rollout(answer="A")) == 1.0
    assert await of.Accuracy().value(rollout(answer="B")) == 0.0
    assert await of.Accuracy().value(rollout(answer=None)) == 0.0
    segment = replace(SAMPLE, question_type="segment", ground_truth="[10, 20]", options=())
    assert await of.Accuracy().value(rollout(answer="[10, 25]", sample=segment)) == 1.0, "right from a half on"


async def test_format() -> None:
    good, refused = call(start_time=1, end_time=2), call(ok=False)
    assert await of.Format().value(rollout(good)) == 1.0
    assert await of.Format().value(rollout(good, answer=None)) == 0.0
    assert [await of.Format(refused_calls=allowed).value(rollout(refused)) for allowed in (True, False)] == [1.0, 0.0]
    failed = replace(refused, error=CallError(CallErrorCode.DEADLINE, "late"))
    assert await of.Format(refused_calls=False).value(rollout(failed)) == 1.0, "not the policy's fault"
    empty = replace(refused, error=CallError(CallErrorCode.NOTHING_FOUND, "no subtitle"))
    assert await of.Format(refused_calls=False).value(rollout(empty)) == 1.0, "nobody can know that nothing is there"
    again, other = call(start_time=1, end_time=2), call(start_time=1, end_time=3)
    strict = of.Format(repeated_calls=False)
    assert [await strict.value(rollout(good, last)) for last in (again, other)] == [0.0, 1.0]


def executed(name: str, arguments: dict[str, Any], **result: Any) -> CallRecord:
    return CallRecord(name, arguments, True, None, frames(1), result)


@pytest.mark.parametrize(
    ("one", "other", "repeats"),
    [
        pytest.param(
            executed("zoom", {"time": 4, "box": [0, 0, 1, 1]}, box=[0, 0, 96, 64]),
            executed("zoom", {"time": 5, "box": [0, 0, 1, 1]}, box=[0, 0, 96, 64]),
            False,
            id="one box at two times",
        ),
        pytest.param(
            executed("zoom", {"time": 4, "box": [0, 0, 1, 1]}, box=[0, 0, 96, 64]),
            executed("zoom", {"time": 4.0, "box": [0, 0, 0.999, 1]}, box=[0, 0, 96, 64]),
            True,
            id="one box in other numbers",
        ),
        pytest.param(
            executed("ask_model", {"question": "who?", "time": 4}, model="m", num_frames=1, cut=False),
            executed("ask_model", {"question": "where?", "time": 4}, model="m", num_frames=1, cut=False),
            False,
            id="two questions",
        ),
        pytest.param(
            executed("ask_model", {"question": "who?", "time": 4}, model="m", num_frames=1, cut=False),
            executed("ask_model", {"question": "who?", "time": 4, "end_time": None}, model="n", num_frames=1, cut=True),
            True,
            id="one question, two replies",
        ),
        pytest.param(
            executed("crop_video", {"start_time": "1", "end_time": 2}, start_time=1.0, end_time=2.0),
            executed("crop_video", {"start_time": 1, "end_time": 2}, start_time=1.0, end_time=2.0),
            True,
            id="numbers that the result tells",
        ),
        pytest.param(
            executed("crop_video", {"start_time": 1, "end_time": 2, "video_path": "v.mp4"}, start_time=1, end_time=2),
            executed("crop_video", {"start_time": 1, "end_time": 2}, start_time=1, end_time=2),
            True,
            id="with the path of the video and without",
        ),
        pytest.param(
            executed("video_zoom", {"segment": [1, 2], "fps": 2}),
            executed("video_zoom", {"segment": [1, 2], "fps": 2, "again": True}),
            True,
            id="an argument that the tool does not take",
        ),
        pytest.param(
            executed("video_zoom", {"segment": [1, 2], "fps": 2}),
            executed("video_zoom", {"segment": [1, 2], "fps": 4}),
            False,
            id="two rates",
        ),
    ],
)
async def test_a_call_repeats_another_one_of_the_same_arguments(
    one: CallRecord, other: CallRecord, repeats: bool
) -> None:
    assert await of.Format(repeated_calls=False).value(rollout(one, other)) == float(not repeats)


async def test_tools_count_once_and_only_where_they_were_carried_out() -> None:
    crop, clip, refused = call(), call("VideoClip"), call("VideoClip", ok=False)
    assert [await of.ToolUse().value(rollout(*calls)) for calls in ((), (crop,), (crop, clip), (refused,))] == [
        0.0,
        1.0,
        1.0,
        0.0,
    ]
    assert await of.ToolUse(tools=("VideoClip",)).value(rollout(crop)) == 0.0
    assert [await of.ToolUse(min_frames=2).value(rollout(call(shown=shown))) for shown in ((5, 5), (5, 6))] == [
        0.0,
        1.0,
    ]
    grid = replace(call("grid"), frames=[replace(frames(5)[0], tiles=(Tile(5, 0.5), Tile(9, 0.9)))])
    assert [await of.ToolUse(min_frames=least).value(rollout(grid)) for least in (2, 3)] == [1.0, 0.0]


async def test_calls() -> None:
    assert await of.Calls().value(rollout(call(), call(ok=False), call("VideoClip"))) == 2.0
    assert await of.Calls(tools=("VideoClip",)).value(rollout(call(), call("VideoClip"))) == 1.0


SEGMENTS = [
    (call(start_time=12, end_time=18.0), (12.0, 18.0)),
    (call("VideoClip", t_start=12, t_end=18), (12.0, 18.0)),
    (call("video_zoom", segment=[12, 18], fps=1), (12.0, 18.0)),
    (call("uniform_sample", start_frame=0, end_frame=9, start_time=12.0, end_time=18.0), (12.0, 18.0)),
    (call("FrameAt", t=3.0), None),
]


@pytest.mark.parametrize(("record", "expected"), SEGMENTS)
async def test_segments_are_those_that_were_carried_out(record: CallRecord, expected: Any) -> None:
    assert segment_of_call(record.result) == expected
    iou = await of.TemporalOverlap().value(rollout(record))
    assert iou == pytest.approx(0.6 if expected else 0.0)


@pytest.mark.parametrize(
    ("record", "iou"),
    [
        pytest.param(
            executed("video_zoom", {"segment": [25, 27], "fps": 2, "start_time": 10, "end_time": 20}), 0.0, id="zoom"
        ),
        pytest.param(executed("video_zoom", {"segment": ["10", 20.0], "fps": 2, "t_start": 0}), 1.0, id="as text"),
        pytest.param(
            executed("search_subtitles", {"words": "a", "start_time": 10, "end_time": 20}, num_captions=1),
            0.0,
            id="words",
        ),
        pytest.param(
            executed(
                "clip_sample",
                {"start_frame": 500, "end_frame": 600, "prompt": "a", "start_time": 10, "end_time": 20},
                start_frame=500,
                end_frame=600,
                prompt="a",
            ),
            0.0,
            id="search",
        ),
        pytest.param(executed("subtitles_at", {"start_time": 10, "end_time": 20}, num_captions=1), 1.0, id="subtitles"),
        pytest.param(
            executed("crop_video", {"start_time": 10, "end_time": 99}, start_time=10.0, end_time=20.0), 1.0, id="result"
        ),
    ],
)
async def test_arguments_that_no_tool_takes_are_no_segment(record: CallRecord, iou: float) -> None:
    assert await of.TemporalOverlap().value(rollout(record)) == iou


@pytest.mark.parametrize(
    "record",
    [
        executed("video_zoom", {"segment": [10, 15, 20], "fps": 1}),
        executed("video_zoom", {"segment": [None, 20], "fps": 1}),
        executed("video_zoom", {"segment": "10-20", "fps": 1}),
        executed("ask_model", {"question": "who?", "time": 4, "start_time": None, "end_time": None}),
        executed("subtitles_at", {"start_time": "at ten", "end_time": 20}),
        executed("subtitles_at", {"start_time": 10}),
        executed("uniform_sample", {"start_frame": [100], "end_frame": 10**400}),
        executed("uniform_sample", {"start_frame": 100, "end_frame": float("inf")}),
        executed("no_such_tool", {"start_time": 10, "end_time": 20}),
    ],
    ids=lambda record: f"{record.arguments}"[:60],
)
async def test_what_is_not_two_numbers_is_no_segment_and_no_error(record: CallRecord) -> None:
    """The reward manager takes a JudgeError alone: any other would cost the whole group."""
    assert await of.TemporalOverlap().value(rollout(record)) == 0.0


async def test_which_segments_count() -> None:
    near, far, refused = call(start_time=10, end_time=15), call(start_time=50, end_time=60), call(ok=False)
    value = [
        await of.TemporalOverlap(calls=which).value(rollout(near, far, refused))  # type: ignore[arg-type]
        for which in ("last", "best", "union")
    ]
    assert value == pytest.approx([0.0, 0.5, 5 / 20])
    assert await of.TemporalOverlap(tools=("VideoClip",)).value(rollout(near)) == 0.0
    assert await of.TemporalOverlap().value(rollout(near, sample=replace(SAMPLE, video_segment_seconds=None))) == 0.0
    asks_when = replace(SAMPLE, question_type="segment", ground_truth="[10, 20]")
    assert await of.TemporalOverlap().value(rollout(near, sample=asks_when)) == 0.0
