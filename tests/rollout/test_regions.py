"""Parts of frames in a whole rollout: the very pixels, budgets before them, records, rewards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import av
import numpy as np
import pytest

import verl_video_tools.rollout.observation as videos_module
from tests.verl_plugin.harness import QUESTION, model_dir, run_loop, video
from tests.zooming_method import PATH, Zooming
from verl_video_tools.core.types import (
    Box,
    Content,
    FrameRequest,
    ImagePart,
    Message,
    Region,
    Sample,
    StopReason,
    Trajectory,
    content_images,
    content_text,
)
from verl_video_tools.replay import replay
from verl_video_tools.rollout.cost import estimate_cost
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import AssistantTurn
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens
from verl_video_tools.video import Video
from verl_video_tools.video.frame_converter import FrameConverter

LEFT, RIGHT = [0, 0, 0.5, 1], [0.5, 0, 1, 1]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def turn(*calls: str) -> str:
    return "<think>look</think>" + "".join(calls)


ANSWER = "<think>seen</think><answer>B</answer>"


@dataclass
class Listener:
    turns: list[str]
    heard: list[Sequence[Message]] = field(default_factory=list)

    async def turn(self, messages: Sequence[Message]) -> AssistantTurn | None:
        self.heard.append(messages)
        return AssistantTurn(self.turns.pop(0))

    def images(self, number: int) -> list[ImagePart]:
        return content_images(self.heard[number][-1].content)


def part_of(seconds: float, box: Sequence[float], width: int, height: int) -> np.ndarray:
    with Video(video()) as opened:
        request = FrameRequest(width, height, seconds=(seconds,), region=Region(Box(*box), "normalised"))
        return opened.frames(request).frames_THWC[0]


async def test_two_parts_of_one_frame_keep_their_own_pixels() -> None:
    policy = Listener([turn(call("zoom", time=4, box=LEFT), call("zoom", time=4, box=RIGHT)), ANSWER])
    sample = Sample(QUESTION, "B", video(), "mc", extra_info={"box": [48, 0, 96, 32]})
    trajectory = await Episode(Zooming(), sample).run(policy)
    images = policy.images(1)
    assert [image.record.region for image in images] == [(0, 0, 48, 64), (48, 0, 96, 64)]
    for image, box in zip(images, (LEFT, RIGHT), strict=True):
        assert image.pixels_HWC is not None
        expected = part_of(4, box, image.record.width, image.record.height)
        np.testing.assert_array_equal(image.pixels_HWC, expected)
    assert content_text(policy.heard[1][-1].content) == (
        "\n4.00 s, part [0, 0, 0.5, 1]: <image>\n4.00 s, part [0.5, 0, 1, 1]: <image>\nTurns left: 3"
    )
    calls = trajectory.executed_calls()
    assert [each.frames for each in calls] == [[image.record] for image in images]
    assert [each.result for each in calls] == [{"box": [0, 0, 48, 64]}, {"box": [48, 0, 96, 64]}]
    assert Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict()))) == trajectory
    reward = await Zooming().score(trajectory, sample, None)
    assert reward == {"score": 1.5, "accuracy": 1.0, "box": 0.5}


async def test_a_picture_is_named_by_its_place_and_a_part_of_a_part_is_of_the_frame() -> None:
    turns = [
        turn(call("zoom", frame=2, box=RIGHT)),  # of the second frame shown with the question
        turn(call("zoom", frame=4, box=[0.5, 0, 1, 0.5])),  # of that part
        turn(call("zoom", frame=9, box=LEFT)),
        ANSWER,
    ]
    method, sample = Zooming(frame_by="frame"), Sample(QUESTION, "B", video(), "mc")
    policy = Listener(turns)
    trajectory = await Episode(method, sample).run(policy)
    named = trajectory.initial_frames[2]
    first, second, unknown = trajectory.calls()
    assert (first.frames[0].index, first.frames[0].region) == (named.index, (48, 0, 96, 64))
    assert (second.frames[0].index, second.frames[0].region) == (named.index, (72, 0, 96, 32))
    assert second.result == {"box": [72, 0, 96, 32]}
    assert str(unknown.error) == "unknown_frame: there is no picture 9; pictures run from 0 to 5"
    (image,) = policy.images(2)
    with Video(video()) as opened:
        whole = opened.frames_at_indices([named.index]).frames_THWC[0]
    assert image.pixels_HWC is not None
    expected = FrameConverter().convert(
        av.VideoFrame.from_ndarray(np.ascontiguousarray(whole[:32, 72:]), format="rgb24"),
        *image.pixels_HWC.shape[1::-1],
    )
    np.testing.assert_array_equal(image.pixels_HWC, expected)


async def test_a_refused_part_is_told_and_the_rollout_goes_on() -> None:
    policy = Listener([turn(call("zoom", time=4, box=[0.5, 0, 0.2, 1]), call("zoom", time=4, box=RIGHT)), ANSWER])
    trajectory = await Episode(Zooming(), Sample(QUESTION, "B", video(), "mc")).run(policy)
    refused, shown = trajectory.calls()
    assert refused.error is not None and refused.error.code == "reversed_box" and not trajectory.flags
    assert shown.ok and trajectory.stop_reason is StopReason.ANSWER
    assert "\nreversed_box: box [0.5, 0, 0.2, 1] ends before" in content_text(policy.heard[1][-1].content)


@dataclass
class NoImages:
    """A budget that refuses every observation with images."""

    asked: list[Content] = field(default_factory=list)

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        return None

    def refuses_observation(self, content: Content) -> StopReason | None:
        self.asked.append(content)
        return StopReason.RESPONSE_BUDGET if content_images(content) else None


async def test_budgets_are_asked_before_any_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[FrameRequest] = []
    real = videos_module.decode_frames

    async def decode(opened: Any, request: FrameRequest, **options: Any) -> Any:
        decoded.append(request)
        return await real(opened, request, **options)

    monkeypatch.setattr(videos_module, "decode_frames", decode)
    budget = NoImages()
    policy = Listener(
        [turn(call("zoom", time=4, box=LEFT)), turn(call("zoom", time=9, box=RIGHT)), ANSWER],
    )
    trajectory = await Episode(Zooming(), Sample(QUESTION, "B", video(), "mc"), budget=budget).run(policy)
    assert [request.region for request in decoded] == [None]  # the initial frames
    assert [len(content_images(content)) for content in budget.asked[::2]] == [1, 1]
    assert all(image.pixels_HWC is None for content in budget.asked for image in content_images(content))
    assert [str(each.error).partition(":")[0] for each in trajectory.calls()] == ["response_budget"] * 2


async def test_the_token_loop_trains_on_them() -> None:
    """Its own checks of ids, mask and image grids pass, and the model's processor leaves the pictures alone."""
    turns = [
        turn(call("zoom", time=4, box=LEFT), call("zoom", time=4, box=RIGHT)),
        ANSWER,
    ]
    result = await run_loop(turns, method=PATH, video_path=video())
    trajectory = result.trajectory
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ANSWER, [])
    assert len(result.images) == 4 + 2
    inputs, _ = result.training_tensors()
    shown = [*trajectory.initial_frames, *(frame for each in trajectory.calls() for frame in each.frames)]
    grids = [(int(rows) * 14, int(columns) * 14) for _, rows, columns in inputs["image_grid_thw"].tolist()]
    assert grids == [(frame.height, frame.width) for frame in shown]


def test_no_call_costs_more_than_the_budget_says() -> None:
    model = load_model_tokens(model_dir())
    with Video(video()) as opened:
        cost = estimate_cost(Zooming(), opened.info, model, question=QUESTION, turn_tokens=50)
    assert cost.call is not None and cost.call.num_frames == 1
    assert cost.call.frame_tokens == 12_544 // 28**2


def test_replay_reports_regions_of_those_pictures_alone() -> None:
    turns = [turn(call("zoom", time=4, box=LEFT)), ANSWER]
    result = replay(PATH, video(), QUESTION, "B", turns)
    size = {"index", "timestamp_seconds", "width", "height"}
    assert all(set(frame) == size for frame in result["initial_frames"])
    zoomed = result["turns"][0]["calls"][0]["frames"][0]
    assert zoomed["region"] == [0, 0, 48, 64] and set(zoomed) == {*size, "region"}
    assert result["counts"]["tool_frames"] == 1
    json.dumps(result)
