"""The record as a dict: what `dataclasses.asdict` makes of it, in the same order, but for errors, which are texts, and
for what few pictures or calls have, which the others leave out."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from verl_video_tools.core import trajectory as module
from verl_video_tools.core.errors import CallError, CallErrorCode
from verl_video_tools.core.frames import FrameRecord, VideoInfo
from verl_video_tools.core.regions import PixelBox
from verl_video_tools.core.services import ModelCall
from verl_video_tools.core.trajectory import CallRecord, StopReason, Trajectory, Turn


def example() -> Trajectory:
    frames = [FrameRecord(number, number / 2, 280, 168) for number in range(5)]
    refused = CallRecord(
        name="crop", arguments={"start": 1}, ok=False, error=CallError(CallErrorCode.UNKNOWN_TOOL, "no")
    )
    shown = CallRecord(name="crop", arguments={"spans": [[1, 2]]}, ok=True, error=None, frames=frames[2:])
    turns = [Turn("a", [refused, shown], observation="seen"), Turn("b", answer="B")]
    parts = {"tools": ["crop"]}
    return Trajectory(
        "compose", "what?", initial_frames=frames, turns=turns, stop_reason=StopReason.ANSWER, provenance=parts
    )


def test_a_video_whose_rate_varies_is_read_back() -> None:
    uneven = VideoInfo(10.0, 50, 5.0, 56, 56, uneven_last_seconds=7.5)
    trajectory = replace(example(), video=uneven, more_videos=[replace(uneven, uneven_last_seconds=None), uneven])
    assert Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict()))) == trajectory


def test_the_same_text_as_before() -> None:
    trajectory = example()
    trajectory.turns[0].calls[1].text = "two of them"
    trajectory.turns[0].calls[1].model_calls = [ModelCall("how many? <image>", trajectory.initial_frames[:1], "two")]
    expected = asdict(trajectory)
    del expected["visuals"], expected["more_videos"], expected["verification"]
    answered = expected["turns"][0]["calls"][1]
    for frame in (*expected["initial_frames"], *answered["frames"], *answered["model_calls"][0]["frames"]):
        del frame["video"], frame["digest"]
    for name in ("text", "model_calls"):
        del expected["turns"][0]["calls"][0][name]
    for call in (call for turn in expected["turns"] for call in turn["calls"]):
        assert call.pop("pictures") == []
    for turn in expected["turns"]:
        assert turn.pop("rewards") == {}
        for call in turn["calls"]:
            call["error"] = None if call["error"] is None else str(CallError(**call["error"]))
    calls = [call for turn in expected["turns"] for call in turn["calls"]]
    shown = [expected["initial_frames"], *(call["frames"] for call in calls)]
    shown += [exchange["frames"] for call in calls for exchange in call.get("model_calls", ())]
    for frame in (frame for frames in shown for frame in frames):
        assert frame.pop("region") is None
    assert json.dumps(trajectory.to_dict()) == json.dumps(expected)
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory


def test_what_a_methods_name_tells_is_not_recorded() -> None:
    plain = replace(example(), provenance=None)
    assert "provenance" not in plain.to_dict() and Trajectory.from_dict(plain.to_dict()) == plain


def test_a_dict_of_its_own() -> None:
    trajectory = example()
    made = trajectory.to_dict()
    made["initial_frames"].clear()
    made["turns"][0]["calls"][1]["arguments"]["spans"].clear()
    made["turns"][0]["calls"][1]["frames"].clear()
    assert trajectory == example()


def test_frames_are_not_copied_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the slow way does: it walks through the fields of every frame."""

    def refuse_frames(value: object) -> dict[str, object]:
        assert isinstance(value, Trajectory)
        assert not value.initial_frames and not any(call.frames for call in value.calls())
        return asdict(value)

    monkeypatch.setattr(module, "asdict", refuse_frames)
    told = example().to_dict()["initial_frames"]
    assert [list(frame) for frame in told] == [["index", "timestamp_seconds", "width", "height"]] * 5


def test_regions_are_recorded_where_there_are_any() -> None:
    part = FrameRecord(7, 0.5, 56, 28, PixelBox(1, 2, 30, 40))
    trajectory = example()
    trajectory.turns[0].calls[1].frames = [part]
    told = json.loads(json.dumps(trajectory.to_dict()))
    size = {"index": 7, "timestamp_seconds": 0.5, "width": 56, "height": 28}
    assert told["turns"][0]["calls"][1]["frames"] == [{**size, "region": [1, 2, 30, 40]}]
    assert Trajectory.from_dict(told) == trajectory
    assert len({part, *trajectory.initial_frames}) == 6  # images are told apart by their records
