"""Pictures that tools make: counted before anything is decoded, shown, recorded as PNG, and made again in replays."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.talking_method import ANSWER, call
from tests.verl_plugin.harness import run_loop
from tests.verl_plugin.test_sft_dataset import make_dataset
from tests.videos.files import MakeVideo
from verl_video_tools import methods
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import (
    CallRecord,
    Content,
    FrameRecord,
    FrameRequest,
    ImagePart,
    Message,
    PixelEnvelope,
    Sample,
    StopReason,
    Tool,
    ToolContext,
    ToolDescription,
    ToolOutcome,
    ToolPlan,
    Trajectory,
    VideoInfo,
    content_images,
    content_text,
    with_pixels,
)
from verl_video_tools.data.export_rollouts import rows_of_records, table_of_rows
from verl_video_tools.methods import get_method
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.methods.toolkit import Zoom
from verl_video_tools.records.view import write_rollout
from verl_video_tools.replay import replay
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.testing.run import check_method
from verl_video_tools.verl_plugin import images as stored_images
from verl_video_tools.verl_plugin import stock_tools
from verl_video_tools.verl_plugin.stock_tools import VideoTool

QUESTION = "What moves?\nA. a cat\nB. a dog"
INFO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=96, height=64)
OPTIONS = {"options": ["a cat", "a dog"], "question_type": "mc"}
BOUNDS = PixelEnvelope(28, 28 * 28, 56 * 56)


def drawing(shade: int) -> npt.NDArray[np.uint8]:
    pixels_HWC = np.full((40, 60, 3), shade, np.uint8)
    pixels_HWC[:, :30] = 255 - shade
    return pixels_HWC


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draws a picture, and shows a frame beside it if it is asked to."""

    name: ClassVar[str] = "draw"
    description: ClassVar[ToolDescription] = ToolDescription(
        name=name, description="Draws.", parameters={"shade": ("integer", "Any."), "frame": ("integer", "Any.")}
    )
    offset: ClassVar[int] = 0
    """What a new version of the tool adds to a shade."""

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        frame = arguments.get("frame")
        request = None if frame is None else FrameRequest(width=56, height=28, indices=(frame,))
        picture: Any = drawing(arguments["shade"] + self.offset)
        if arguments.get("broken"):
            picture = picture.astype(np.float32)
        return ToolPlan(request, text=arguments.get("text"), pictures=(picture,))


@dataclass(frozen=True, kw_only=True)
class Drawing(LongVT):
    """LongVT with a tool that draws."""

    name: ClassVar[str] = "drawing"
    tool_descriptions: ClassVar[tuple[ToolDescription, ...]] = (Draw.description,)
    check_examples: ClassVar[tuple[str, ...]] = (call("draw", shade=9),)

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        return {**super().tools(info), Draw.name: Draw()}


class Zooming(Drawing):
    """It can also look closer at what it was shown."""

    name: ClassVar[str] = "zooming"

    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        return {**super().tools(info), Zoom.name: Zoom(frame_by="frame")}


class Retouching(Drawing):
    """Replaces the pixels of its frames when it shows them, which no record would tell."""

    name: ClassVar[str] = "retouching"

    def observe(self, outcomes: Sequence[ToolOutcome], turns_left: int) -> Content:
        return tuple(
            part if isinstance(part, str) else replace(part, pixels_HWC=drawing(0))
            for part in super().observe(outcomes, turns_left)
        )


class Listener(ScriptedPolicy):
    """Keeps what it is shown."""

    def __init__(self, turns: Sequence[str]) -> None:
        super().__init__(turns)
        self.heard: list[Message] = []

    async def turn(self, messages: Sequence[Message]) -> Any:
        self.heard += messages
        return await super().turn(messages)


@dataclass
class Budget:
    """Refuses observations with more images than it takes."""

    max_images: int
    asked: list[Content] = field(default_factory=list)

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        return None

    def refuses_observation(self, content: Content) -> StopReason | None:
        self.asked.append(content)
        return StopReason.IMAGE_BUDGET if len(content_images(content)) > self.max_images else None


def roll_out(
    video: str, turns: Sequence[str], method: LongVT | None = None, **options: Any
) -> tuple[Trajectory, list[Message]]:
    policy = Listener([*turns, ANSWER])
    sample = Sample(QUESTION, "B", video, "mc", ("a cat", "a dog"))
    return asyncio.run(Episode(method or Drawing(), sample, **options).run(policy)), policy.heard


def png_of(picture: Any) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture.png))))


def test_a_picture_is_shown_and_recorded(make_video: MakeVideo) -> None:
    turns = [call("draw", shade=9, text="Drawn:", frame=30), call("draw", shade=9), call("draw", shade=10)]
    trajectory, heard = roll_out(make_video(), turns)
    assert (trajectory.flags, trajectory.stop_reason) == ([], StopReason.ANSWER)
    drawn, frame = content_images(heard[2].content)
    np.testing.assert_array_equal(drawn.pixels_HWC, drawing(9))
    assert frame.record.index == 30 and drawn.record.index == -1
    assert "Drawn:\n<image>\n1.0s <image>" in content_text(heard[2].content)

    first, same, other = (one.pictures[0] for one in trajectory.calls())
    assert first == same != other and (first.width, first.height) == (60, 40)
    np.testing.assert_array_equal(png_of(other), drawing(10))
    assert trajectory.picture_digests() == [first.digest, first.digest, other.digest]
    assert [len(one.frames) for one in trajectory.calls()] == [1, 0, 0], "rewards count frames of the video alone"
    record = json.loads(json.dumps(trajectory.to_dict()))
    assert Trajectory.from_dict(record) == trajectory
    assert record["turns"][0]["calls"][0]["pictures"][0]["digest"] == first.digest


def test_records_without_pictures_have_no_key_for_them(make_video: MakeVideo) -> None:
    trajectory, _ = roll_out(make_video(), [call("crop_video", start_time=1, end_time=2)])
    (record,) = trajectory.to_dict()["turns"][0]["calls"]
    assert record["ok"] and "pictures" not in record and all("digest" not in frame for frame in record["frames"])


def test_the_digest_is_part_of_an_images_identity() -> None:
    one, other = (FrameRecord(-1, 0.0, 56, 28, digest=digest) for digest in ("a", "b"))
    assert FrameRecord.from_dict(one.to_dict()) == one != other
    names = {stored_images.block_name([ImagePart(record)]) for record in (one, other)}
    assert len(names) == 2
    parts = [ImagePart(record, drawing(shade)) for record, shade in ((one, 1), (other, 2))]
    assert with_pixels((ImagePart(other), ImagePart(one)), parts) == (parts[1], parts[0])


def test_a_picture_has_a_size_that_the_processor_leaves_alone(make_video: MakeVideo) -> None:
    trajectory, heard = roll_out(make_video(), [call("draw", shade=9)], envelope=BOUNDS)
    (shown,) = content_images(heard[2].content)
    ((picture,),) = (one.pictures for one in trajectory.calls())
    assert (picture.width, picture.height) == (shown.record.width, shown.record.height) == (56, 28)
    np.testing.assert_array_equal(png_of(picture), shown.pixels_HWC)
    without, _ = roll_out(make_video(), [call("draw", shade=9)])
    assert without.picture_digests() == trajectory.picture_digests(), "of what the tool made"


def test_budgets_count_pictures_before_frames_are_decoded(make_video: MakeVideo) -> None:
    budget = Budget(max_images=1)
    turns = [call("draw", shade=9), call("draw", shade=9, frame=30)]
    trajectory, heard = roll_out(make_video(), turns, budget=budget, envelope=BOUNDS)
    sizes = [[(image.record.width, image.record.height) for image in content_images(each)] for each in budget.asked]
    assert sizes[:2] == [[(56, 28)], [(56, 28), (56, 28)]]
    (frame,) = (image for image in content_images(budget.asked[1]) if image.record.digest is None)
    assert frame.pixels_HWC is None
    first, second = trajectory.calls()
    assert first.ok and str(second.error).startswith("image_budget") and second.pictures == []
    assert [len(content_images(message.content)) for message in heard[2:]] == [1, 0], "the second one was not shown"


def test_a_failed_call_keeps_no_picture(make_video: MakeVideo) -> None:
    trajectory, heard = roll_out(make_video(), [call("draw", shade=9, frame=10**6)])
    (failed,) = trajectory.calls()
    assert failed.failed() and failed.pictures == [] and not content_images(heard[-1].content)


def test_what_is_no_picture_is_named(make_video: MakeVideo) -> None:
    with pytest.raises(UsageError, match=r"arrays of uint8 \(height, width, 3\), got float32 \(40, 60, 3\)"):
        roll_out(make_video(), [call("draw", shade=9, broken=True)])


def test_pixels_replaced_elsewhere_are_an_error_that_says_where_to_make_pictures(
    make_video: MakeVideo, tmp_path: Path
) -> None:
    with pytest.raises(
        UsageError, match=r"pixels that are not theirs.*only a tool brings pictures.*ToolPlan\.pictures"
    ):
        roll_out(make_video(), [call("crop_video", start_time=1, end_time=2)], Retouching())
    failed = [str(each.reason) for each in check_method(f"{__name__}:Retouching", folder=tmp_path)]
    assert any("ToolPlan.pictures" in reason for reason in failed)


def test_a_method_that_draws_passes_the_checks(tmp_path: Path) -> None:
    findings = check_method(f"{__name__}:Drawing", folder=tmp_path)
    names = ("observe_answers_every_outcome", "observations_show_what_is_recorded")
    assert {each.property: each.reason for each in findings if each.property in names} == dict.fromkeys(names)


def test_a_picture_is_no_frame_to_look_closer_at(make_video: MakeVideo) -> None:
    """Its place among the images stays, and the call that names it is refused: the rollout is no failure."""
    number = len(roll_out(make_video(), [])[0].initial_frames)
    box = [0, 0, 1, 1]
    turns = [call("draw", shade=9), call("zoom", frame=number, box=box), call("zoom", frame=number - 1, box=box)]
    trajectory, _ = roll_out(make_video(), turns, Zooming())
    assert trajectory.flags == []
    assert str(trajectory.calls()[1].error) == f"unknown_frame: picture {number} is no frame of the video"
    assert trajectory.calls()[2].ok


@pytest.mark.parametrize("name", [name for name in methods.METHOD_NAMES if name != "direct"])
def test_every_method_shows_the_pictures_of_a_tool(name: str) -> None:
    part = ImagePart(FrameRecord(-1, 0.0, 60, 40, digest="a"), drawing(9))
    record = ImagePart(FrameRecord(30, 1.0, 60, 40), drawing(7))
    for frames in ((), (record,)):
        call_record = CallRecord("of a package", {}, ok=True, frames=[each.record for each in frames], text="Drawn:")
        content = get_method(name).observe([ToolOutcome(call_record, frames, INFO, (part,))], 3)
        assert content_images(content) == [part, *frames] and "Drawn:\n<image>" in content_text(content)


# ------------------------------------------------------------------------------------------------- where they are used


@pytest.fixture
def drawing_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.REGISTERED, "drawing", f"{__name__}:Drawing")


async def test_the_agent_loop_trains_on_them(drawing_method: None, make_video: MakeVideo) -> None:
    """Its own checks of ids, mask and image grids pass, and the processor leaves the picture alone."""
    made = await run_loop(
        [call("draw", shade=9, frame=30), ANSWER], video_path=make_video(), question=QUESTION, method="drawing"
    )
    assert (made.trajectory.flags, made.trajectory.stop_reason) == ([], StopReason.ANSWER)
    ((picture,),) = (one.pictures for one in made.trajectory.calls())
    assert picture.width % 28 == picture.height % 28 == 0


def test_fine_tuning_makes_them_again_and_warns_of_others(
    drawing_method: None,
    make_video: MakeVideo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trajectory, _ = roll_out(make_video(), [call("draw", shade=9), call("draw", shade=10)])
    line = {
        "trajectory": trajectory,
        "data_source": "t",
        "ground_truth": "B",
        "reward": {"score": 1.0, "accuracy": 1.0},
        "extra_info": {"question": QUESTION, "video_path": make_video(), **OPTIONS, "index": 7, "split": "train"},
    }
    rows, _ = rows_of_records([line], min_accuracy=None, min_iou=0.0, well_formed=False)
    path = tmp_path / "sft.parquet"
    pq.write_table(table_of_rows(rows), path)
    dataset = make_dataset(str(path))
    with caplog.at_level(logging.WARNING):
        shown = dataset.sequences(0)[0].images
        assert sum(image.record.digest is not None for image in shown) == 2 and not caplog.records
        monkeypatch.setattr(Draw, "offset", 1)
        make_dataset(str(path)).sequences(0)
    assert (
        "row index=7" in caplog.text
        and "2 of the 2 pictures that tools made in its rollout are other ones" in caplog.text
    )


def test_replay_and_viewer(drawing_method: None, make_video: MakeVideo, tmp_path: Path) -> None:
    result = replay("drawing", make_video(), QUESTION, "B", [call("draw", shade=9), ANSWER], OPTIONS)
    ((picture,),) = (one["pictures"] for one in result["turns"][0]["calls"])
    assert picture["width"] == 60
    trajectory, _ = roll_out(make_video(), [call("draw", shade=9)])
    page = tmp_path / "page.html"
    write_rollout({"trajectory": trajectory}, page, title="t")
    assert picture["png"] in page.read_text()


async def test_verls_own_loop_shows_them(
    drawing_method: None, make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock_tools, "get_method", lambda name, **fields: Drawing(**fields))
    tool = type("Made", (VideoTool,), {"method_name": "drawing", "tool_name": "draw"})({"type": "native"})
    for arguments, text, num_images in (
        ({"shade": 9}, "Shown above, in order: a picture", 1),
        ({"shade": 9, "text": "Drawn."}, "Drawn.", 1),
        ({"shade": 9, "frame": 30}, "Shown above, in order: a picture, 1.00 s", 2),
    ):
        instance_id, _ = await tool.create(create_kwargs={"video_path": make_video()})
        response, _, _ = await tool.execute(instance_id, arguments)
        assert (response.text, len(response.image)) == (text, num_images)
        np.testing.assert_array_equal(np.asarray(response.image[0]), drawing(9))
