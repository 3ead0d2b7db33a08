"""Frames shown with the question, chosen by a selector instead of the method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.videos.files import MakeVideo
from verl_video_tools.core.errors import RetrievalError, UsageError
from verl_video_tools.core.tool import load_selector
from verl_video_tools.core.types import FrameRequest, Sample, StopReason, ToolContext, Trajectory
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.services.retrieval import recorded_answers, recorded_retriever

MOST_SIMILAR = "verl_video_tools.methods.toolkit.frames:most_similar"


class Retriever:
    """Likes the candidates nearest to frame 700, and notes what it was asked."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.asked: list[tuple[str, int]] = []

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        if self.fails:
            raise RetrievalError("no encoder answers")
        self.asked.append((text, len(candidates)))
        return sorted(candidates, key=lambda index: abs(index - 700))[:num_frames]


async def first_two(look: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
    return replace(look, seconds=None, indices=(0, 1))


async def one_too_many(look: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
    return replace(look, seconds=None, indices=tuple(range(len(look) + 1)))


async def start(video: str, method: str, selector: str, retriever: Any = None) -> Trajectory:
    sample = Sample(question="Where is the dog?", ground_truth="A", video_path=video, question_type="mc")
    episode = Episode(get_method(method, initial_frames_selector=selector), sample, retriever=retriever)
    await episode.start()
    return episode.trajectory


@pytest.mark.parametrize("method", METHOD_NAMES)
async def test_every_method_takes_a_selector(method: str, make_video: MakeVideo) -> None:
    trajectory = await start(make_video(), method, f"{__name__}:first_two")
    assert [frame.index for frame in trajectory.initial_frames] == [0, 1]


async def test_frames_most_like_the_question(make_video: MakeVideo) -> None:
    retriever = Retriever()
    trajectory = await start(make_video(), "framethinker", MOST_SIMILAR, retriever)
    shown = [frame.index for frame in trajectory.initial_frames]
    assert retriever.asked == [("Where is the dog?", 256)]
    assert shown == sorted(shown) and len(shown) == 8 and all(abs(index - 700) < 60 for index in shown)
    again = await start(make_video(), "framethinker", MOST_SIMILAR, recorded_retriever(recorded_answers(trajectory)))
    assert again.initial_frames == trajectory.initial_frames
    assert Trajectory.from_dict(trajectory.to_dict()).retrieved_frames == trajectory.retrieved_frames


@pytest.mark.parametrize(
    ("retriever", "message"), [(None, "the run has none"), (Retriever(fails=True), "no encoder answers")]
)
async def test_a_failed_search_keeps_the_rollout_out_of_training(
    retriever: Any, message: str, make_video: MakeVideo
) -> None:
    trajectory = await start(make_video(), "longvt", MOST_SIMILAR, retriever)
    assert trajectory.stop_reason is StopReason.ABORTED and trajectory.flags == ["aborted"]
    assert message in (trajectory.error or "")


async def broken(look: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
    raise ZeroDivisionError("no frames per second")


@pytest.mark.parametrize(("selector", "message"), [("one_too_many", "chose 9 frames"), ("broken", "ZeroDivisionError")])
async def test_a_faulty_selector_is_told_in_the_record(selector: str, message: str, make_video: MakeVideo) -> None:
    trajectory = await start(make_video(), "framethinker", f"{__name__}:{selector}")
    assert trajectory.flags == ["aborted"] and message in (trajectory.error or "")


def test_ours_has_a_registered_name() -> None:
    path = "verl_video_tools.methods.toolkit.frames:most_similar"
    assert load_selector("most_similar") is load_selector(path)


async def test_mistakes_are_told(make_video: MakeVideo) -> None:
    for path in (
        "least_similar",
        "no_such_module:select",
        f"{__name__}:nothing",
        "verl_video_tools.methods.toolkit.frames",
        "verl_video_tools.methods.toolkit.frames:NUM_CANDIDATES",
        ".relative:select",
    ):
        with pytest.raises(UsageError, match="initial_frames_selector"):
            get_method("videozoomer", initial_frames_selector=path)
