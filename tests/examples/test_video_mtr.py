"""examples/papers/video_mtr: what turns earn, by hand, and the commands of its README."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.papers.video_mtr.video_mtr.method import VideoMTR
from tests.examples.conftest import EXAMPLES, failed_properties
from tests.examples.test_own_methods import undocumented
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import CallRecord, Sample, StopReason, Trajectory, Turn, VideoInfo

pytestmark = pytest.mark.slow

FOLDER = EXAMPLES / "papers" / "video_mtr"
PATH = "examples.papers.video_mtr.video_mtr.method:VideoMTR"
QUESTION = "What is shown?\nA. a cat\nB. a dog"


def crop(start: float, end: float, ok: bool = True) -> CallRecord:
    return CallRecord("crop_video", {}, ok=ok, result={"start_time": start, "end_time": end} if ok else {})


def rollout(*calls: CallRecord, answer: str = "B") -> Trajectory:
    turns = [*(Turn(text="x", calls=[call]) for call in calls), Turn(text="x", answer=answer)]
    video = VideoInfo(20.0, 600, 30.0, 64, 36)
    return Trajectory("video_mtr", "?", video=video, turns=turns, answer=answer, stop_reason=StopReason.ANSWER)


def sample(segment: tuple[float, float] | None = (4.0, 8.0)) -> Sample:
    return Sample(question="?", ground_truth="B", video_path="v.mp4", question_type="mc", video_segment_seconds=segment)


# The evidence is 4 of 20 seconds: the initial frames have an IoU of 0.2.
@pytest.mark.parametrize(
    ("trajectory", "segment", "accuracy", "turns"),
    [
        (rollout(), (4.0, 8.0), 0.9, [0]),
        (rollout(crop(0, 8)), (4.0, 8.0), 0.8, [0.5, 0]),
        (rollout(crop(0, 8), crop(4, 8)), (4.0, 8.0), 0.7, [0.5, 0.5, 0]),
        (rollout(crop(4, 8), crop(0, 8)), (4.0, 8.0), 0.7, [0.5, 0, 0]),
        (rollout(crop(10, 12), crop(0, 8)), (4.0, 8.0), 0.7, [0, 0.5, 0]),
        (rollout(crop(4, 8, ok=False)), (4.0, 8.0), 0.8, [0, 0]),
        (rollout(crop(4, 8)), None, 0.8, [0, 0]),
        (rollout(crop(4, 8), answer="A"), (4.0, 8.0), 0.0, [0, 0]),
    ],
)
async def test_a_reward_by_hand(
    trajectory: Trajectory, segment: tuple[float, float] | None, accuracy: float, turns: list[float]
) -> None:
    method = VideoMTR()
    reward = await method.score(trajectory, sample(segment))
    assert reward == pytest.approx({"score": accuracy, "accuracy": accuracy, "retrieval": sum(turns)})
    assert [turn.rewards["retrieval"] for turn in trajectory.turns] == turns
    assert method.acc(reward, sample(segment)) == float(trajectory.answer == "B")


def test_it_uses_documented_names() -> None:
    assert undocumented(FOLDER / "video_mtr" / "method.py") == []


def test_the_checker_passes() -> None:
    assert failed_properties(PATH) == {}


def test_the_readmes_replay(
    install: Callable[[str], Path], make_video: MakeVideo, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = install("papers/video_mtr")
    command = ["replay", "--method", "video_mtr", "--video", make_video(300), "--question", QUESTION, "--answer", "B"]
    assert run([*command, "--turns", str(folder / "turns.json")]) == 0
    result: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert result["reward"] == pytest.approx({"score": 0.7, "accuracy": 0.7, "retrieval": 0.0})
    assert result["counts"]["executed_calls"] == 2
