"""A rollout as a picture for trackers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.videos.files import MakeVideo
from tests.viewer_page import frames, line
from verl_video_tools.core.errors import CallError
from verl_video_tools.core.types import CallRecord, StopReason, Trajectory
from verl_video_tools.records.rollout_picture import WIDTH, call_line, outcome, rollout_picture
from verl_video_tools.video import Video


def recorded(path: str) -> dict:
    """A rollout on a real video, with what it holds."""
    made = {"step": 3, "uid": "a", "ground_truth": "B", **line(path=path)}
    with Video(path) as video:
        made["trajectory"].video = video.info
    return made


def test_frames_of_the_video_are_drawn(make_video: MakeVideo) -> None:
    made = recorded(make_video(300))
    picture = np.asarray(rollout_picture(made))
    assert picture.shape[1:] == (WIDTH, 3)
    lost = {**made, "extra_info": {"video_path": "/videos/gone.mp4"}}
    assert picture.shape[0] > np.asarray(rollout_picture(lost)).shape[0] + 60, "rows of frames"


def test_a_video_that_is_gone_is_said(tmp_path: Path) -> None:
    made = {"step": 3, "uid": "a", "ground_truth": "B", **line(path=str(tmp_path / "gone.mp4"))}
    red = (np.asarray(rollout_picture(made)) == np.array([176, 0, 32])).all(-1).sum()
    assert red > 50


def test_a_rollout_without_anything_is_drawn() -> None:
    trajectory = Trajectory("direct", "q?", error="the file is gone", stop_reason=StopReason.VIDEO_ERROR)
    made = {"step": 1, "uid": "a", "ground_truth": None, "reward": {}, "trajectory": trajectory}
    assert rollout_picture(made).width == WIDTH


def test_long_texts_are_cut(make_video: MakeVideo) -> None:
    short, long = recorded(make_video(300)), recorded(make_video(300))
    long["trajectory"].question = "word " * 10_000
    assert rollout_picture(long).height <= rollout_picture(short).height + 4 * 17


def test_what_came_of_it_in_words() -> None:
    trajectory = Trajectory("longvt", "q?", answer="A", stop_reason=StopReason.ANSWER, flags=["judge"])
    reward = {"score": 1.1, "accuracy": 1.0, "format": 0.1, "necessity": 0.0, "note": "x"}
    made = {"ground_truth": "B", "reward": reward, "trajectory": trajectory}
    assert outcome(made) == (
        "truth 'B', answer 'A', ended by answer; reward 1.1 (accuracy 1, format 0.1); flagged: judge"
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (CallRecord("crop", {"start": 1}, True, frames=frames(2, 4)), 'crop {"start": 1}: 2 frames'),
        (CallRecord("crop", {}, False, error=CallError.parse("out_of_range: x")), "crop {}: refused: out_of_range: x"),
        (CallRecord("subtitles", {}, True, text="hello"), "subtitles {}: hello"),
    ],
)
def test_a_call_in_words(call: CallRecord, text: str) -> None:
    assert call_line(call) == text
