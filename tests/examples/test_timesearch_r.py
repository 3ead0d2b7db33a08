"""examples/papers/timesearch_r: search by text in a span, and completeness by a second answer from what was found."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from examples.papers.timesearch_r.timesearch_r.method import TimeSearchR
from tests.examples.conftest import failed_properties
from tests.methods.doubles import ScoringRetriever
from tests.verl_plugin.harness import QUESTION
from tests.videos.files import MakeVideo
from verl_video_tools.replay import areplay

pytestmark = pytest.mark.slow

PATH = "examples.papers.timesearch_r.timesearch_r.method:TimeSearchR"


def test_the_checker_passes() -> None:
    assert failed_properties(TimeSearchR) == {}


def seek(**arguments: Any) -> str:
    call = json.dumps({"name": "seek_video_frames", "arguments": arguments})
    return f"<think>look</think><tool_call>{call}</tool_call>"


def answer(text: str) -> str:
    return f"<think>so</think><answer>{text}</answer>"


async def replayed(video: str, *turns: str, **settings: Any) -> dict[str, Any]:
    return await areplay(PATH, video, QUESTION, "B", list(turns), settings=settings, retriever=ScoringRetriever())


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        # format 1, accuracy 0.5, completeness 0.5 (paper: weights of the rewards; code: reward/v7.py)
        ([seek(query="a dog"), answer("B"), "B"], (1.0, 0.5, 0.5)),
        ([seek(query="a dog"), answer("B"), answer("B")], (1.0, 0.5, 0.5)),
        ([seek(query="a dog"), answer("B"), "I do not know"], (1.0, 0.5, 0.0)),
        ([seek(query="a dog"), answer("A"), "B"], (1.0, 0.0, 0.0)),  # only where the first answer is right
        ([answer("B"), "B"], (1.0, 0.5, 0.0)),  # nothing was found to answer from
        ([seek(query="a dog", start_time=9, end_time=2), answer("B"), "B"], (1.0, 0.5, 0.0)),
        ([seek(query="a dog"), "no thought <answer>B</answer>", "B"], (0.0, 0.5, 0.5)),
        ([seek(query="a dog"), "nothing"], (0.0, 0.0, 0.0)),
        ([seek(query="a dog"), answer("B")], (1.0, 0.5, 0.0)),  # a script without a second answer
    ],
)
async def test_rewards(make_video: MakeVideo, turns: list[str], expected: tuple[float, ...]) -> None:
    reward = (await replayed(make_video(300), *turns))["reward"]
    assert tuple(reward[name] for name in ("format", "accuracy", "completeness")) == expected
    assert reward["score"] == pytest.approx(sum(expected))


async def test_a_search_shows_the_best_frames_of_its_span_in_order_of_time(make_video: MakeVideo) -> None:
    result = await replayed(make_video(300), seek(query="a dog", start_time=4, end_time=9, num_frames=3), answer("B"))
    (call,) = result["turns"][0]["calls"]
    times = [frame["timestamp_seconds"] for frame in call["frames"]]
    assert call["ok"] and len(times) == 3 and times == sorted(times) and 4 <= times[0] <= times[-1] <= 9
    labels = re.findall(r"([\d.]+)s<image>", result["turns"][0]["observation"])
    assert labels == [f"{time:.1f}" for time in times]


async def test_a_blank_query_spreads_its_frames_and_defaults_are_the_whole_video(make_video: MakeVideo) -> None:
    result = await replayed(make_video(300), seek(query=" "), answer("B"))
    indices = [frame["index"] for frame in result["turns"][0]["calls"][0]["frames"]]
    steps = {after - before for before, after in pairwise(indices)}
    assert (indices[0], indices[-1], len(indices)) == (0, 299, 8) and max(steps) - min(steps) <= 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "malformed_call"),
        ({"query": "x", "num_frames": 0}, "malformed_call"),
        ({"query": "x", "num_frames": 2.5}, "malformed_call"),
        ({"query": "x", "num_frames": 9}, "too_many_frames"),
        ({"query": "x", "start_time": 5, "end_time": 4}, "reversed_segment"),
        ({"query": "x", "end_time": 999}, "out_of_range"),
    ],
)
async def test_refusals_are_read_and_the_rollout_goes_on(
    make_video: MakeVideo, arguments: dict[str, Any], code: str
) -> None:
    result = await replayed(make_video(300), seek(**arguments), answer("B"))
    assert result["turns"][0]["calls"][0]["error"].startswith(code) and result["answer"] == "B"


async def test_the_last_of_eight_turns_cannot_search(make_video: MakeVideo) -> None:
    result = await replayed(make_video(300), *[seek(query="a dog")] * 9)
    assert (len(result["turns"]), result["counts"]["executed_calls"], result["stop_reason"]) == (8, 7, "max_turns")


def test_the_request_repeats_no_frame_and_no_word_of_the_rollout() -> None:
    from verl_video_tools.core.types import FrameRecord, ImagePart, Message, Trajectory, content_text

    first, second = (ImagePart(FrameRecord(index, index / 10, 56, 56)) for index in (10, 30))
    prompt = [Message("system", ("be brief",)), Message("user", (first, ImagePart(FrameRecord(0, 0.0, 56, 56)), "?"))]
    seen = [Message("user", content) for content in ((second, first), (second,), ("no such time",))]
    turns = [Message("assistant", ("look",))] * 3
    dialogue = [*prompt, *(message for pair in zip(turns, seen, strict=True) for message in pair)]
    method, trajectory = TimeSearchR(), Trajectory("timesearch_r", "What?")
    context = method.verification_context(trajectory, dialogue)
    assert context is not None and context[0].role == "system"
    assert content_text(context[1].content) == "1.0s<image>\n3.0s<image>\nWhat?"
    assert method.verification_context(trajectory, prompt) is None
