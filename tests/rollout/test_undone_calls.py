"""A call is executed once its result has been shown: what was only planned, or decoded for nobody, was not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import VideoError
from verl_video_tools.core.types import Sample, Trajectory
from verl_video_tools.data.sft import execute
from verl_video_tools.methods import get_method
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.replay import replay
from verl_video_tools.rollout import observation as videos_module

QUESTION = "What does the driver wave with?"


def crops(*spans: tuple[float, float], **others: str) -> str:
    calls = [
        {"name": "crop_video", "arguments": {"start_time": start, "end_time": end, **others}} for start, end in spans
    ]
    return "<think>look there</think>" + "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)


ANSWER = "<think>seen</think><answer>B</answer>"
EXTRA = {"question_type": "mc", "options": ["a hat", "a scarf"], "video_segment": [10.0, 20.0]}


def replayed(video: str, turns: list[str], **settings: Any) -> dict[str, Any]:
    return replay("longvt", video, QUESTION, "B", turns, EXTRA, {"initial_frames": 4, **settings})


def calls_of(result: Mapping[str, Any]) -> list[tuple[bool, str | None, int]]:
    calls = [call for turn in result["turns"] for call in turn["calls"]]
    return [(call["ok"], (call["error"] or "").partition(":")[0] or None, len(call["frames"])) for call in calls]


@pytest.mark.parametrize("compat", ["strict", "reference"])
@pytest.mark.parametrize("spans", [((10, 20), (30, 25)), ((30, 25), (10, 20))])
def test_siblings_of_a_refused_call_were_not_executed(
    make_video: MakeVideo, spans: tuple[tuple[float, float], ...], compat: str
) -> None:
    video = make_video(3000)
    path = {"video_path": video} if compat == "reference" else {}  # which the published tool requires
    result = replayed(video, [crops(*spans, **path), ANSWER], end_on_call_error=True, compat=compat)
    assert result["stop_reason"] == "invalid_action"
    codes = ["not_executed" if start < end else "reversed_segment" for start, end in spans]
    assert calls_of(result) == [(False, code, 0) for code in codes]
    assert result["counts"] == {"assistant_turns": 1, "executed_calls": 0, "initial_frames": 4, "tool_frames": 0}
    assert (result["reward"]["score"], result["reward"]["temporal_iou"]) == (0.0, 0.0)


def test_siblings_are_shown_where_the_rollout_goes_on(make_video: MakeVideo) -> None:
    result = replayed(make_video(3000), [crops((10, 20), (30, 25)), ANSWER], end_on_call_error=False)
    assert calls_of(result) == [(True, None, 10), (False, "reversed_segment", 0)]
    assert result["reward"]["temporal_iou"] == 1.0


async def failing_rollout(video: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Trajectory:
    """The second of two crops cannot be decoded."""
    decode, num_decodes = videos_module.decode_frames, 0

    async def decode_frames(*args: Any, **kwargs: Any) -> Any:
        nonlocal num_decodes
        num_decodes += 1
        if num_decodes == 3:
            raise VideoError("planted")
        return await decode(*args, **kwargs)

    monkeypatch.setattr(videos_module, "decode_frames", decode_frames)
    method = get_method("longvt", initial_frames=4, **settings)
    return await execute(method, Sample(QUESTION, "B", video, "mc"), [crops((10, 20), (30, 40)), ANSWER])


async def test_frames_decoded_for_nobody_were_not_shown(make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    trajectory = await failing_rollout(make_video(3000), monkeypatch, end_on_call_error=True)
    first, second = trajectory.calls()
    assert str(trajectory.stop_reason) == "video_error" and trajectory.flags
    assert (first.ok, first.frames, first.result) == (False, [], {})
    assert str(first.error) == "not_executed: another call of the turn failed"
    assert str(second.error) == "video_error: planted" and second.failed() and not first.failed()
    metrics = rollout_metrics([Rollout("u", trajectory, {"score": 0.0, "acc": 0.0})])
    assert (metrics["tool/executed_per_rollout"], metrics["tool/crop_video/success_rate"]) == (0.0, 0.0)
    assert (metrics["tool/error/not_executed"], metrics["frames/tool/mean"]) == (1.0, 0.0)


async def test_a_failed_call_leaves_its_siblings_where_the_rollout_goes_on(
    make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    trajectory = await failing_rollout(make_video(3000), monkeypatch, end_on_call_error=False)
    assert [call.ok for call in trajectory.calls()] == [True, False]
    assert len(trajectory.calls()[0].frames) == 10 and trajectory.turns[0].observation is not None
