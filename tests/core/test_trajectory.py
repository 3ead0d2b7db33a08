"""The record as a dict: what `dataclasses.asdict` makes of it, in the same order, but for errors, which are texts, and
for what few calls have, which the others leave out."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest

from verl_video_tools.core import trajectory as module
from verl_video_tools.core.errors import CallError, CallErrorCode
from verl_video_tools.core.frames import FrameRecord
from verl_video_tools.core.model_calls import ModelCall
from verl_video_tools.core.trajectory import CallRecord, StopReason, Trajectory, Turn


def example() -> Trajectory:
    frames = [FrameRecord(number, number / 2, 280, 168) for number in range(5)]
    refused = CallRecord(
        name="crop", arguments={"start": 1}, ok=False, error=CallError(CallErrorCode.UNKNOWN_TOOL, "no")
    )
    shown = CallRecord(name="crop", arguments={"spans": [[1, 2]]}, ok=True, error=None, frames=frames[2:])
    turns = [Turn("a", [refused, shown], observation="seen"), Turn("b", answer="B")]
    return Trajectory("longvt", "what?", initial_frames=frames, turns=turns, stop_reason=StopReason.ANSWER)


def test_the_same_text_as_before() -> None:
    trajectory = example()
    trajectory.turns[0].calls[1].text = "two of them"
    trajectory.turns[0].calls[1].model_calls = [ModelCall("how many? <image>", trajectory.initial_frames[:1], "two")]
    expected = asdict(trajectory)
    del expected["visuals"], expected["more_videos"]
    answered = expected["turns"][0]["calls"][1]
    for frame in (*expected["initial_frames"], *answered["frames"], *answered["model_calls"][0]["frames"]):
        del frame["video"]
    for name in ("text", "model_calls"):
        del expected["turns"][0]["calls"][0][name]
    for turn in expected["turns"]:
        for call in turn["calls"]:
            call["error"] = None if call["error"] is None else str(CallError(**call["error"]))
    assert json.dumps(trajectory.to_dict()) == json.dumps(expected)
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory


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
    assert [len(fields(FrameRecord)) - 1] * 5 == [len(frame) for frame in example().to_dict()["initial_frames"]]
