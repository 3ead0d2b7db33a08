"""Weights and gates against a hand calculation; each term against the record that it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.methods.doubles import StubJudge
from verl_video_tools.core.config import resolve
from verl_video_tools.core.errors import CallError, CallErrorCode, JudgeError
from verl_video_tools.core.types import (
    AnswerLabel,
    CallRecord,
    FrameRecord,
    Sample,
    StopReason,
    ToolDescription,
    Trajectory,
    Turn,
    VideoInfo,
)
from verl_video_tools.methods.compose import parts as of
from verl_video_tools.methods.compose.composition import TOOLS
from verl_video_tools.methods.compose.parts import ScoringContext, Term, components


def tool_parameters(path: str) -> frozenset[str]:
    """Names of the arguments that a tool takes."""
    tool = resolve(path, {}, "tool")
    description = tool.description if isinstance(tool.description, ToolDescription) else tool().description
    return frozenset(description.parameters) - {"video_path"}


VIDEO = VideoInfo(duration_seconds=100.0, num_frames=1000, average_fps=10.0, width=96, height=64)
SAMPLE = Sample("Which?", "A", "v.mp4", "mc", ("a cat", "a dog"), (10.0, 20.0))
OPEN = replace(SAMPLE, question_type="open", ground_truth="a cat", options=())
PARAMETERS = {name: tool_parameters(entry["class"]) for name, entry in TOOLS.items()}


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
    return ScoringContext(trajectory, sample, judge, PARAMETERS)


@dataclass(frozen=True, kw_only=True)
class Fixed(Term):
    number: float

    async def value(self, rollout: ScoringContext) -> float:
        return self.number


@dataclass(frozen=True, kw_only=True)
class Untouched(Term):
    async def value(self, rollout: ScoringContext) -> float:
        raise JudgeError("asked")


ACCURACY, FORMAT, TOOL = of.Accuracy(key="accuracy"), of.Format(key="format"), of.ToolUse(key="tool")
CALLS, OVERLAP = of.Calls(key="calls"), of.TemporalOverlap(key="temporal_iou")

values = st.floats(-2, 2, allow_nan=False).map(lambda value: round(value, 3))


@given(
    number=st.tuples(values, values, values),
    weight=st.tuples(values, values, values),
    gate_from=st.one_of(st.none(), values),
)
async def test_gates_multiply_or_open_and_weights_follow(
    number: tuple[float, ...], weight: tuple[float, ...], gate_from: float | None
) -> None:
    terms = (
        Fixed(key="first", number=number[0], weight=weight[0], gate="all", gate_from=gate_from),
        Fixed(key="second", number=number[1], weight=weight[1], gate=("third",)),
        Fixed(key="third", number=number[2], weight=weight[2]),
    )
    opened = float(number[0] >= gate_from) if gate_from is not None else min(max(number[0], 0.0), 1.0)
    second_value = number[1] * opened
    third_value = number[2] * opened * min(max(second_value, 0.0), 1.0)
    expected = {
        "first": number[0] * (weight[0] or 1.0),
        "second": second_value * (weight[1] or 1.0),
        "third": third_value * (weight[2] or 1.0),
    }
    assert await components(terms, rollout()) == pytest.approx(expected)


async def test_a_closed_gate_asks_no_judge() -> None:
    closed, accuracy = Fixed(key="format", number=0.0, gate=("accuracy",)), Untouched(key="accuracy")
    assert await components((closed, accuracy), rollout()) == {"format": 0.0, "accuracy": 0.0}
    with pytest.raises(JudgeError):
        await components((replace(closed, number=0.1), accuracy), rollout())


async def test_nothing_is_not_minus_nothing() -> None:
    assert str(await components((replace(CALLS, weight=-0.5),), rollout())) == "{'calls': 0.0}"


async def test_a_judge_grades_an_open_answer() -> None:
    judge = StubJudge(AnswerLabel.PARTIAL)
    assert await ACCURACY.value(rollout(answer="cats", sample=OPEN, judge=judge)) == 0.5
    assert judge.answers == ["cats"]


async def test_accuracy() -> None:
    assert await ACCURACY.value(rollout(answer="A")) == 1.0
    assert await ACCURACY.value(rollout(answer="B")) == 0.0
    assert await ACCURACY.value(rollout(answer=None)) == 0.0
    segment = replace(SAMPLE, question_type="segment", ground_truth="[10, 20]", options=())
    assert await ACCURACY.value(rollout(answer="[10, 25]", sample=segment)) == 1.0, "right from a half on"


async def test_format() -> None:
    good, refused = call(start_time=1, end_time=2), call(ok=False)
    assert await FORMAT.value(rollout(good)) == 1.0
    assert await FORMAT.value(rollout(good, answer=None)) == 0.0
    assert [await replace(FORMAT, refused_calls=allowed).value(rollout(refused)) for allowed in (True, False)] == [
        1.0,
        0.0,
    ]
    failed = replace(refused, error=CallError(CallErrorCode.DEADLINE, "late"))
    assert await replace(FORMAT, refused_calls=False).value(rollout(failed)) == 1.0, "not the policy's fault"
    empty = replace(refused, error=CallError(CallErrorCode.NOTHING_FOUND, "no subtitle"))
    assert await replace(FORMAT, refused_calls=False).value(rollout(empty)) == 1.0, (
        "nobody can know that nothing is there"
    )
    again, other = call(start_time=1, end_time=2), call(start_time=1, end_time=3)
    strict = replace(FORMAT, repeated_calls=False)
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
    assert await replace(FORMAT, repeated_calls=False).value(rollout(one, other)) == float(not repeats)


async def test_tools_count_once_and_only_where_they_were_carried_out() -> None:
    crop, clip, refused = call(), call("VideoClip"), call("VideoClip", ok=False)
    assert [await TOOL.value(rollout(*calls)) for calls in ((), (crop,), (crop, clip), (refused,))] == [
        0.0,
        1.0,
        1.0,
        0.0,
    ]
    assert await replace(TOOL, tools=("VideoClip",)).value(rollout(crop)) == 0.0
    assert [await replace(TOOL, min_frames=2).value(rollout(call(shown=shown))) for shown in ((5, 5), (5, 6))] == [
        0.0,
        1.0,
    ]


async def test_calls() -> None:
    assert await CALLS.value(rollout(call(), call(ok=False), call("VideoClip"))) == 2.0


@pytest.mark.parametrize(
    ("record", "iou"),
    [
        pytest.param(call(start_time=12, end_time=18.0), 0.6, id="result"),
        pytest.param(
            executed("crop_video", {"start_time": 1, "end_time": 2}, start_time=12, end_time=18), 0.6, id="cut"
        ),
        pytest.param(call("VideoClip", shown=(120, 150, 180), t_start=0, t_end=99), 0.6, id="frames shown"),
        pytest.param(call("video_zoom", shown=(120, 180)), 0.6, id="no result"),
        pytest.param(call("video_zoom", shown=()), 0.0, id="nothing shown"),
        pytest.param(executed("search_subtitles", {"words": "a", "start_time": 10, "end_time": 20}), 0.0, id="made up"),
        pytest.param(call(ok=False, start_time=10, end_time=20), 0.0, id="refused"),
    ],
)
async def test_a_segment_is_what_was_executed_and_not_what_was_written(record: CallRecord, iou: float) -> None:
    assert await OVERLAP.value(rollout(record)) == pytest.approx(iou)


async def test_the_best_segment_counts() -> None:
    near, far, refused = call(start_time=10, end_time=15), call(start_time=50, end_time=60), call(ok=False)
    assert await OVERLAP.value(rollout(near, far, refused)) == pytest.approx(0.5)
    assert await replace(OVERLAP, tools=("VideoClip",)).value(rollout(near)) == 0.0
    assert await OVERLAP.value(rollout(near, sample=replace(SAMPLE, video_segment_seconds=None))) == 0.0
    asks_when = replace(SAMPLE, question_type="segment", ground_truth="[10, 20]")
    assert await OVERLAP.value(rollout(near, sample=asks_when)) == 0.0
