"""Rows with several videos: frames of each, told apart in the prompt, in records, and in calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.talking_method import ANSWER, Spy, call
from tests.verl_plugin.harness import run_loop
from tests.videos.files import read_number, write_video
from verl_video_tools import methods
from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import (
    FrameRequest,
    ImagePart,
    Message,
    PixelEnvelope,
    Sample,
    StopReason,
    Tool,
    ToolContext,
    ToolPlan,
    Trajectory,
    VideoInfo,
    content_images,
    content_text,
)
from verl_video_tools.data.stock_rows import to_tool_agent_row
from verl_video_tools.data.validate import RowMethods, validate_file
from verl_video_tools.methods import get_method
from verl_video_tools.methods.direct import Direct
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.toolkit import AskModel, video_argument
from verl_video_tools.replay import replay
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.services.tool_model import ScriptedToolModel
from verl_video_tools.video import Video, fit_box

QUESTION = "Which film is longer?\nA. the first\nB. the second"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Films of 20 and 40 frames at 10 per second, whose pictures tell their frame numbers, of two sizes."""
    folder = tmp_path_factory.mktemp("films")
    write_video(folder / "a.mp4", num_frames=20, fps=10)
    write_video(folder / "b.mp4", num_frames=40, fps=10)
    return [str(folder / "a.mp4"), str(folder / "b.mp4")]


def row(paths: Sequence[str], **extra_info: Any) -> dict[str, Any]:
    asked = {"question": QUESTION, "video_paths": list(paths), "options": ["the first", "the second"], "index": 7}
    truth = {"style": "rule", "ground_truth": "B"}
    prompt = [{"role": "user", "content": QUESTION}]
    return {"data_source": "t", "prompt": prompt, "reward_model": truth, "extra_info": {**asked, **extra_info}}


class Listening(ScriptedPolicy):
    def __init__(self, turns: Sequence[str]) -> None:
        super().__init__(turns)
        self.heard: list[Message] = []

    async def turn(self, messages: Sequence[Message]) -> Any:
        self.heard += messages
        return await super().turn(messages)


@dataclass(frozen=True, kw_only=True)
class Peek:
    """Shows the first frame of a video by its number."""

    name: ClassVar[str] = "peek"

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        video, info = video_argument(arguments, context)
        width, height = fit_box(info.width, info.height, 96, 64, context.envelope)
        return ToolPlan(FrameRequest(width=width, height=height, indices=(3,), video=video))


@dataclass(frozen=True, kw_only=True)
class Films(LongVT):
    """LongVT's loop on several films, which it is shown as `direct` shows them."""

    name: ClassVar[str] = "films"
    more: ClassVar[dict[str, Tool]] = {}

    @property
    def asks_about_several_videos(self) -> bool:
        return True

    def plan_videos(self, infos: Sequence[VideoInfo], sample: Sample, envelope: PixelEnvelope) -> list[FrameRequest]:
        return Direct(initial_frames=4).plan_videos(infos, sample, envelope)

    def videos_prompt(self, sample: Sample, infos: Sequence[VideoInfo], images: Sequence[ImagePart]) -> list[Message]:
        return Direct(initial_frames=4).videos_prompt(sample, infos, images)

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        return {Peek.name: Peek(), AskModel.name: AskModel(num_frames=2), **self.more}


# ----------------------------------------------------------------------------------------------------------------- rows


def test_a_row_names_its_videos_in_order(paths: list[str]) -> None:
    sample = Sample.from_row(row(paths))
    assert (sample.videos, sample.video_path, sample.media) == (tuple(paths), paths[0], paths[0])
    one = Sample.from_row(row(paths[:1]))
    assert (one.videos, one.more_video_paths) == ((paths[0],), ())


@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({"video_path": "c.mp4"}, "names both video_path and video_paths"),
        ({"image_paths": ["a.png"]}, "no two of these"),
        ({"video_paths": "a.mp4"}, "video_paths must be a list of paths, got 'a.mp4'"),
        ({"video_paths": ["a.mp4", None]}, "video_paths must be a list of paths"),
        ({"video_paths": []}, "video_path is missing or empty"),
    ],
)
def test_a_row_that_contradicts_itself(paths: list[str], extra_info: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        Sample.from_row(row(paths, **extra_info))


# ------------------------------------------------------------------------------------------------------------- rollouts


async def test_frames_of_each_are_shown_and_told_apart(paths: list[str]) -> None:
    method, sample, policy = get_method("direct", initial_frames=4), Sample.from_row(row(paths)), Listening([ANSWER])
    trajectory = await Episode(method, sample).run(policy)
    told = content_text(policy.heard[-1].content)
    assert told == (
        f"{QUESTION}\n\nvideo 1, frame 0 at 0.00 s: <image>\nvideo 1, frame 19 at 1.90 s: <image>"
        "\nvideo 2, frame 0 at 0.00 s: <image>\nvideo 2, frame 39 at 3.90 s: <image>"
    )
    images = content_images(policy.heard[-1].content)
    assert [read_number(image.pixels_HWC) for image in images] == [0, 19, 0, 39]
    assert [(frame.video, frame.index) for frame in trajectory.initial_frames] == [(0, 0), (0, 19), (1, 0), (1, 39)]
    assert trajectory.video is not None
    infos = [trajectory.video, *trajectory.more_videos]
    assert [info.num_frames for info in infos] == [20, 40]
    assert (await method.score(trajectory, sample))["accuracy"] == 1.0
    assert Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict()))) == trajectory


async def test_a_call_names_a_video_by_its_number(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: list[ToolContext] = []
    monkeypatch.setattr(Films, "more", {"spy": Spy(contexts)})
    turns = [call("peek", video=2), call("peek"), call("peek", video=3), call("peek", video="2"), call("spy"), ANSWER]
    policy = Listening(turns)
    method = Films(end_on_call_error=False, max_turns=8)
    trajectory = await Episode(method, Sample.from_row(row(paths))).run(policy)
    second, first, beyond, text, _ = trajectory.calls()
    assert [(frame.video, frame.index) for frame in (*second.frames, *first.frames)] == [(1, 3), (0, 3)]
    assert str(beyond.error) == "wrong_video: video 3 does not exist; there are 1 to 2"
    assert str(text.error).startswith("malformed_call: ")
    shown = [image for message in policy.heard[2:] for image in content_images(message.content)]
    assert [read_number(image.pixels_HWC) for image in shown] == [3, 3]
    (context,) = contexts
    assert [info.num_frames for info in context.videos] == [20, 40]
    assert [(frame.video, frame.index) for frame in context.previous_frames[-3:]] == [(1, 39), (1, 3), (0, 3)]
    assert trajectory.flags == []


async def test_a_model_is_asked_about_the_video_that_a_call_names(paths: list[str]) -> None:
    model = ScriptedToolModel(["the end"])
    turns = [call("ask_model", question="?", start_time=3, end_time=3.9, video=2), ANSWER]  # after the end of the first
    trajectory = await Episode(Films(), Sample.from_row(row(paths)), tool_model=model).run(ScriptedPolicy(turns))
    (asked,) = trajectory.calls()
    assert [(frame.video, frame.index) for frame in asked.model_calls[0].frames] == [(1, 30), (1, 39)]
    assert (asked.text, trajectory.flags) == ("the end", [])


async def test_a_request_for_a_video_that_is_not_there_fails_its_call(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
            return ToolPlan(FrameRequest(width=28, height=28, indices=(0,), video=2))

    monkeypatch.setattr(Films, "more", {"wrong": Wrong()})
    method = Films(end_on_call_error=False)
    trajectory = await Episode(method, Sample.from_row(row(paths))).run(ScriptedPolicy([call("wrong"), ANSWER]))
    assert "there is no video 2" in str(trajectory.calls()[0].error) and trajectory.flags == ["video_error"]


async def test_a_method_that_asks_about_one_loses_the_rollout_by_name(paths: list[str]) -> None:
    trajectory = await Episode(get_method("longvt"), Sample.from_row(row(paths))).run(ScriptedPolicy([ANSWER]))
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ABORTED, ["aborted"])
    assert trajectory.error == "longvt does not ask about several videos, and the row has 2"


async def test_a_video_that_cannot_be_read_loses_the_rollout(paths: list[str], tmp_path: Path) -> None:
    sample = Sample.from_row(row([paths[0], str(tmp_path / "gone.mp4")]))
    trajectory = await Episode(get_method("direct"), sample).run(ScriptedPolicy([ANSWER]))
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.VIDEO_ERROR, ["video_error"])


# ------------------------------------------------------------------------------------------------- where they are used


async def test_the_agent_loop_trains_on_them(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.REGISTERED, "films", f"{__name__}:Films")
    made = await run_loop([call("peek", video=2), ANSWER], row=row(paths), method="films")
    assert (made.trajectory.flags, made.trajectory.stop_reason) == ([], StopReason.ANSWER)
    assert [frame.video for frame in made.trajectory.calls()[0].frames] == [1]
    refused = await run_loop([ANSWER], row=row(paths), method="longvt")
    assert refused.trajectory.flags == ["row_error"] and "several videos" in str(refused.trajectory.error)


def test_validation_replay_and_viewer(paths: list[str], tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.mp4")
    rows = [row(paths), row([paths[0], gone]), row(paths)]
    rows = [{**one, "agent_name": name} for one, name in zip(rows, ["direct", "direct", "longvt"], strict=True)]
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    problems = [report.problems for report in validate_file(file, methods=RowMethods())]
    assert problems == [(), (f"no such video file: {gone}",), ("longvt does not ask about several videos",)]
    # The first video's length says nothing about the others' segments.
    late = row(paths) | {"agent_name": "direct"}
    late["extra_info"] = {**late["extra_info"], "video_segment": [0.0, 1000.0]}
    pq.write_table(pa.Table.from_pylist([late]), file)
    (report,) = validate_file(file, methods=RowMethods(), videos={paths[0]: Video(paths[0]).info})
    assert report.problems == () and report.cost is None
    page = tmp_path / "page.html"
    extra = {"video_paths": paths, "options": ["the first", "the second"]}
    result = replay("direct", None, QUESTION, "B", [ANSWER], extra, {"initial_frames": 4}, html=page)
    assert [frame.get("video", 0) for frame in result["initial_frames"]] == [0, 0, 1, 1]
    assert result["reward"]["score"] == 1.0 and page.exists()


async def test_verls_own_tool_loop_takes_one_video(paths: list[str]) -> None:
    with pytest.raises(RowError, match="takes rows with one video, got 2"):
        await to_tool_agent_row(row(paths))


def test_direct_without_frames_asks_about_none() -> None:
    assert not Direct(initial_frames=0).asks_about_several_videos
    with pytest.raises(UsageError, match="longvt does not ask about several videos"):
        get_method("longvt").plan_videos([], Sample("q", "A", "v.mp4", "mc"), PixelEnvelope())
