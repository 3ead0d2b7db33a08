"""A tool that asks a model: which frames and words it sends, what is recorded, and what each failure does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.talking_method import ANSWER, Talking, call, calls, sample
from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import CallErrorCode, CallRejected, ToolModelError
from verl_video_tools.core.types import (
    Content,
    FrameRequest,
    ImagePart,
    ModelLimits,
    ModelReply,
    PixelEnvelope,
    RecordedByCall,
    StopReason,
    ToolContext,
    ToolModel,
    Trajectory,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.methods.toolkit import AskModel
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.tool_model import (
    FunctionToolModel,
    ScriptedToolModel,
    recorded_exchanges,
    recorded_tool_model,
)
from verl_video_tools.video import Video

INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=64, height=36)
MOMENT = {"question": "What is on the table?", "time": 12}


def use(monkeypatch: pytest.MonkeyPatch, tool: AskModel | None = None) -> None:
    monkeypatch.setattr(Talking, "more", {AskModel.name: tool or AskModel(num_frames=3)})


async def rollout(
    video: str, turns: list[str], model: ToolModel | RecordedByCall[ToolModel] | None, **settings: Any
) -> Trajectory:
    method = Talking(initial_frames=4, max_calls_per_turn=4, **settings)
    return await Episode(method, sample(video), tool_model=model).run(ScriptedPolicy(turns))


async def test_the_model_gets_the_frames_of_a_span(make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a decode of the same moments by itself: pixels, times and order."""
    use(monkeypatch)
    model = ScriptedToolModel(["a kettle"])
    video = make_video(300)
    span = call("ask_model", question="What is there?", start_time=2.0, end_time=6.0)
    trajectory = await rollout(video, [span, ANSWER], model)
    (asked,) = model.requests
    images = content_images(asked)
    width, height = images[0].record.width, images[0].record.height
    with Video(video) as opened:
        expected = opened.frames_at([2.0, 4.0, 6.0], height=height, width=width)
    assert [image.record for image in images] == expected.records()
    for image, pixels in zip(images, expected.frames_THWC, strict=True):
        assert image.pixels_HWC is not None and (image.pixels_HWC == pixels).all()
    assert content_text(asked) == "[2.0 s]<image>\n[4.0 s]<image>\n[6.0 s]<image>\n\nWhat is there?"
    (record,) = trajectory.calls()
    assert (record.ok, record.text, record.frames) == (True, "a kettle", [])
    assert record.result == {"model": "scripted", "num_frames": 3, "cut": False}
    assert trajectory.counts()["tool_frames"] == 0


async def test_the_exchange_is_recorded_and_replays_without_a_model(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    refusal = CallRejected(CallErrorCode.NO_REPLY, "the model gave no reply that can be used")
    model = ScriptedToolModel(["a kettle", refusal], ModelLimits(calls=2))
    turns = [calls(*[call("ask_model", **MOMENT, n=number) for number in range(3)]), ANSWER]
    trajectory = await rollout(make_video(), turns, model, end_on_call_error=False)
    first, second, third = trajectory.calls()
    (kept,) = first.model_calls
    assert (kept.request, kept.reply, kept.model) == (
        "[12.0 s]<image>\n\nWhat is on the table?",
        "a kettle",
        "scripted",
    )
    assert [frame.index for frame in kept.frames] == [360] and kept.latency_ms > 0
    assert str(second.model_calls[0].error).startswith("no_reply: ")
    assert (third.model_calls, str(third.error).partition(":")[0]) == ([], "model_budget")
    recorded = Trajectory.from_dict(trajectory.to_dict())
    assert recorded == trajectory
    again = await rollout(
        make_video(), turns, recorded_tool_model(recorded_exchanges(recorded)), end_on_call_error=False
    )
    assert [turn.observation for turn in again.turns] == [turn.observation for turn in trajectory.turns]
    assert [str(record.error) for record in again.calls()] == [str(record.error) for record in trajectory.calls()]


async def test_a_record_of_another_question_does_not_replay(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    asked = recorded_tool_model([[], [{"request": "another?", "reply": "yes"}]])
    trajectory = await rollout(make_video(), [call("ask_model", **MOMENT), ANSWER], asked)
    assert trajectory.flags == ["model_error"] and "export the rollout again" in str(trajectory.calls()[0].error)


@pytest.mark.parametrize("end_on_call_error", [False, True])
async def test_a_question_without_a_reply_is_the_calls_own_failure(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch, end_on_call_error: bool
) -> None:
    use(monkeypatch)
    model = ScriptedToolModel([CallRejected(CallErrorCode.NO_REPLY, "the model gave no reply that can be used")])
    turns = [call("ask_model", **MOMENT), ANSWER]
    trajectory = await rollout(make_video(), turns, model, end_on_call_error=end_on_call_error)
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ANSWER, [])
    assert "no_reply" in str(trajectory.turns[0].observation)


@pytest.mark.parametrize("end_on_call_error", [False, True])
@pytest.mark.parametrize("model", [None, ScriptedToolModel([])], ids=["none set up", "down"])
async def test_a_model_that_is_not_there_keeps_the_rollout_out_of_training(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch, model: ToolModel | None, end_on_call_error: bool
) -> None:
    use(monkeypatch)
    turns = [call("ask_model", **MOMENT), ANSWER]
    trajectory = await rollout(make_video(), turns, model, end_on_call_error=end_on_call_error)
    (record,) = trajectory.calls()
    assert record.failed() and trajectory.flags == ["model_error"]
    assert trajectory.stop_reason is StopReason.ANSWER
    # The policy reads that it failed, and nothing of where the model is or what is wrong with it.
    observation = "<tool_response>\nError: model_error: the model of this tool could not be asked\n</tool_response>"
    assert trajectory.turns[0].observation == observation


async def test_metrics_tell_calls_failures_tokens_and_time(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    replies = [ModelReply("yes", "m", 60, 10), ToolModelError("down")]

    def reply(content: Content) -> ModelReply:
        found = replies.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    turns = [call("ask_model", **MOMENT)] * 2 + [ANSWER]
    trajectory = await rollout(make_video(), turns, FunctionToolModel(reply))
    trajectory.turns[0].calls[0].model_calls[0].latency_ms = 20.0
    metrics = rollout_metrics([Rollout("u", trajectory, {"score": 0.0, "acc": 0.0})])
    found = {name: value for name, value in metrics.items() if name.startswith("tool_model/")}
    assert found == {
        "tool_model/calls": 2.0,
        "tool_model/failures": 1.0,
        "tool_model/prompt_tokens": 60.0,
        "tool_model/completion_tokens": 10.0,
        "tool_model/latency_ms_p50": 20.0,
    }
    trajectory.turns = []
    none = rollout_metrics([Rollout("u", trajectory, {"score": 0.0, "acc": 0.0})])
    assert not any(name.startswith("tool_model/") for name in none)


async def test_a_reply_that_spells_special_tokens_stays_words(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    model = ScriptedToolModel(["<|im_end|><|image_pad|>"])
    trajectory = await rollout(make_video(), [call("ask_model", **MOMENT), ANSWER], model)
    assert "<|" not in str(trajectory.turns[0].observation) and "< |im_end" in str(trajectory.turns[0].observation)


# ----------------------------------------------------------------------------------------------------------- arguments


def context(model: ToolModel, requests: list[FrameRequest] | None = None) -> ToolContext:
    async def index_at(seconds: float) -> int:
        raise AssertionError("not asked for")

    async def look(request: FrameRequest) -> tuple[ImagePart, ...]:
        if requests is not None:
            requests.append(request)
        return ()

    return ToolContext(INFO, sample("v.mp4"), PixelEnvelope(), index_at, decode=look, model=model)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"time": 3}, "malformed_call"),
        ({"question": "", "time": 3}, "malformed_call"),
        ({"question": "x" * 1001, "time": 3}, "malformed_call"),
        ({"question": ["x"], "time": 3}, "malformed_call"),
        ({"question": "x"}, "malformed_call"),
        ({"question": "x", "time": "3"}, "malformed_call"),
        ({"question": "x", "time": 3, "start_time": 1, "end_time": 2}, "malformed_call"),
        ({"question": "x", "start_time": 1}, "malformed_call"),
        ({"question": "x", "start_time": 5, "end_time": 2}, "reversed_segment"),
        ({"question": "x", "start_time": 5, "end_time": 101}, "out_of_range"),
        ({"question": "x", "time": -0.5}, "out_of_range"),
        ({"question": "x", "time": 100.06}, "out_of_range"),
    ],
)
async def test_a_bad_call_is_refused_before_anything_is_decoded_or_asked(
    arguments: Mapping[str, Any], code: str
) -> None:
    model, requests = ScriptedToolModel(["yes"]), list[FrameRequest]()
    with pytest.raises(CallRejected) as error:
        await AskModel().plan(arguments, context(model, requests))
    assert (error.value.code.value, model.requests, requests) == (code, [], [])


async def test_a_fixed_question_makes_a_captioner() -> None:
    model = ScriptedToolModel(["a street"])
    plan = await AskModel(question="Describe the frames.").plan(
        {"time": None, "start_time": 1, "end_time": 1}, context(model)
    )
    assert (plan.text, model.requests) == ("a street", [("\n\nDescribe the frames.",)])


async def test_a_long_reply_is_cut_and_says_so() -> None:
    plan = await AskModel(max_characters=4).plan(MOMENT, context(ScriptedToolModel(["a street"])))
    assert (plan.text, plan.result["cut"]) == ("a st [...]", True)


@given(st.floats(0, 100), st.floats(0, 100), st.integers(1, 20))
async def test_times_to_look_at_lie_in_the_span(start: float, length: float, num_frames: int) -> None:
    end = min(100.0, start + length)
    requests: list[FrameRequest] = []
    model = FunctionToolModel(lambda content: "yes")
    arguments = {"question": "x", "start_time": start, "end_time": end}
    await AskModel(num_frames=num_frames).plan(arguments, context(model, requests))
    seconds = requests[0].seconds or ()
    assert len(seconds) == (num_frames if end > start else 1)
    assert seconds[0] == start and all(start <= second <= end for second in seconds)
    assert list(seconds) == sorted(seconds)
