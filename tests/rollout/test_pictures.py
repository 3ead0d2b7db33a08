"""Rows with images, and with neither images nor a video: the same episode, without tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.verl_plugin.harness import run_loop
from verl_video_tools.cli.main import run as vvt
from verl_video_tools.core.errors import RowError
from verl_video_tools.core.types import (
    FrameRecord,
    Message,
    PixelEnvelope,
    Sample,
    StopReason,
    Trajectory,
    content_images,
    content_text,
)
from verl_video_tools.data.validate import RowMethods, validate_file
from verl_video_tools.methods import get_method
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.records.view import write_html
from verl_video_tools.replay import replay
from verl_video_tools.rollout import observation as module
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.rollout.policy import ScriptedPolicy
from verl_video_tools.video.pictures import planned_picture, read_picture

QUESTION = "Which is higher?\nA. left\nB. right"
ANSWER = "<think>seen</think><answer>A</answer>"
CROP = (
    '<think>closer</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 0, "end_time": 1}}</tool_call>'
)


def picture(path: Path, width: int, height: int, **options: Any) -> str:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return str(path)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [picture(tmp_path / "a.png", 60, 90), picture(tmp_path / "b.png", 120, 40)]


def row(paths: Sequence[str] | None, **extra_info: Any) -> dict[str, Any]:
    about = {"image_paths": list(paths)} if paths else {"visuals": "none"}
    asked = {"question": QUESTION, "options": ["left", "right"], "index": 7, "split": "train", **about, **extra_info}
    truth = {"style": "rule", "ground_truth": "A"}
    prompt = [{"role": "user", "content": QUESTION}]
    return {"data_source": "t", "prompt": prompt, "reward_model": truth, "extra_info": asked}


class Listening(ScriptedPolicy):
    def __init__(self, turns: Sequence[str]) -> None:
        super().__init__(turns)
        self.heard: list[Message] = []

    async def turn(self, messages: Sequence[Message]) -> Any:
        self.heard += messages
        return await super().turn(messages)


# ----------------------------------------------------------------------------------------------------------------- rows


def test_a_row_says_what_it_comes_with(paths: list[str]) -> None:
    images, text = Sample.from_row(row(paths)), Sample.from_row(row(None))
    assert (images.image_paths, images.video_path, images.media) == (tuple(paths), "", paths[0])
    assert (text.image_paths, text.video_path, text.media) == ((), "", "")


@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({}, "extra_info.video_path is missing or empty"),
        ({"image_paths": []}, "extra_info.video_path is missing or empty"),
        ({"image_paths": "a.png"}, "image_paths must be a list of paths, got 'a.png'"),
        ({"image_paths": ["a.png", 3]}, "image_paths must be a list of paths"),
        ({"image_paths": ["a.png", ""]}, "image_paths must be a list of paths"),
        ({"image_paths": 3}, "image_paths must be a list of paths"),
        ({"image_paths": ["a.png"], "video_path": "v.mp4"}, "1 video and 1 images"),
        ({"image_paths": ["a.png"], "visuals": "none"}, "0 video and 1 images"),
        ({"video_path": "v.mp4", "visuals": "none"}, "1 video and 0 images"),
        ({"video_path": "v.mp4", "visuals": "some"}, "visuals='some'"),
    ],
)
def test_a_row_that_contradicts_itself(extra_info: dict[str, Any], message: str) -> None:
    given = {"question": QUESTION, "index": 7, "split": "train", **extra_info}
    with pytest.raises(RowError, match=f"^row index=7 split=train: .*{message}"):
        Sample.from_row({"extra_info": given, "reward_model": {"ground_truth": "A"}})


# ------------------------------------------------------------------------------------------------------------- rollouts


@pytest.mark.parametrize("name", ["direct", "longvt"])
async def test_images_are_shown_in_order_and_the_answer_is_paid(paths: list[str], name: str) -> None:
    method, sample, policy = get_method(name), Sample.from_row(row(paths)), Listening([ANSWER])
    trajectory = await Episode(method, sample).run(policy)
    images = [image for message in policy.heard for image in content_images(message.content)]
    for path, image in zip(paths, images, strict=True):
        assert image.pixels_HWC is not None
        assert (image.pixels_HWC == np.asarray(Image.open(path).convert("RGB"))).all()
    records = [FrameRecord(0, 0.0, 60, 90), FrameRecord(1, 0.0, 120, 40)]
    assert (trajectory.initial_frames, trajectory.video, trajectory.visuals) == (records, None, "images")
    assert not trajectory.is_lost() and trajectory.stop_reason is StopReason.ANSWER
    assert (await method.score(trajectory, sample))["accuracy"] == 1.0
    recorded = json.loads(json.dumps(trajectory.to_dict()))
    assert Trajectory.from_dict(recorded) == trajectory


@pytest.mark.parametrize("name", ["direct", "longvt"])
async def test_a_text_alone_is_asked(name: str) -> None:
    method, sample, policy = get_method(name), Sample.from_row(row(None)), Listening([ANSWER])
    trajectory = await Episode(method, sample).run(policy)
    assert (trajectory.visuals, trajectory.initial_frames, trajectory.flags) == ("none", [], [])
    assert QUESTION in content_text(policy.heard[-1].content)
    assert (await method.score(trajectory, sample))["accuracy"] == 1.0


async def test_there_are_no_tools(paths: list[str]) -> None:
    method, sample = get_method("longvt", end_on_call_error=False), Sample.from_row(row(paths))
    trajectory = await Episode(method, sample).run(ScriptedPolicy([CROP, ANSWER]))
    (call,) = trajectory.calls()
    assert str(call.error) == "unknown_tool: no tool is called 'crop_video'"
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ANSWER, [])
    metrics = rollout_metrics([Rollout("u", trajectory, {"score": 0.0, "acc": 0.0})])
    assert "tool/unknown/calls_per_rollout" in metrics and "tool/crop_video/calls_per_rollout" not in metrics


async def test_a_method_without_such_a_prompt_loses_the_rollout_by_name(paths: list[str]) -> None:
    trajectory = await Episode(get_method("framethinker"), Sample.from_row(row(paths))).run(ScriptedPolicy([ANSWER]))
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ABORTED, ["aborted"])
    assert "framethinker does not ask about pictures" in str(trajectory.error) and trajectory.is_lost()


async def test_an_image_that_cannot_be_read_loses_the_rollout_by_name(paths: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    sample = Sample.from_row(row([paths[0], str(tmp_path / "bad.png")]))
    trajectory = await Episode(get_method("direct"), sample).run(ScriptedPolicy([ANSWER]))
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.ABORTED, ["aborted"])
    assert "bad.png" in str(trajectory.error)


async def test_the_budget_is_asked_before_pixels(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def refuses_prompt(self, messages: Sequence[Message]) -> StopReason:
            images = [image for message in messages for image in content_images(message.content)]
            assert [image.pixels_HWC for image in images] == [None, None]
            return StopReason.PROMPT_BUDGET

        def refuses_observation(self, content: Any) -> None:
            raise AssertionError

    monkeypatch.setattr(module, "read_picture", lambda *_: pytest.fail("decoded"))
    trajectory = await Episode(get_method("direct"), Sample.from_row(row(paths)), budget=Full()).run(ScriptedPolicy([]))
    assert (trajectory.stop_reason, trajectory.flags) == (StopReason.PROMPT_BUDGET, ["prompt_budget"])


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 8), st.sampled_from([1, 28]))
def test_the_planned_size_is_the_size(
    tmp_path_factory: pytest.TempPathFactory, width: int, height: int, turned: int, factor: int
) -> None:
    """Also of a picture that its EXIF data turns."""
    exif = Image.Exif()
    exif[0x0112] = turned
    path = picture(tmp_path_factory.mktemp("turned") / "a.jpg", width, height, exif=exif)
    envelope = PixelEnvelope(factor, factor**2 * 4, factor**2 * 64) if factor > 1 else PixelEnvelope()
    read = read_picture(path, 3, envelope)
    assert planned_picture(path, 3, envelope).record == read.record
    assert read.pixels_HWC is not None and read.pixels_HWC.shape[:2] == (read.record.height, read.record.width)


# ------------------------------------------------------------------------------------------------- where they are used


async def test_the_agent_loop_trains_on_images(paths: list[str]) -> None:
    """Its invariants hold, against the model's own processor: they are checked at the end of every rollout."""
    made = await run_loop([ANSWER], row=row(paths), method="longvt")
    assert (made.trajectory.flags, made.trajectory.stop_reason) == ([], StopReason.ANSWER)
    assert [len(made.trajectory.initial_frames), made.trajectory.visuals] == [2, "images"]
    (output,) = made.outputs
    assert sum(output.response_mask) > 0


async def test_the_agent_loop_refuses_a_text_alone() -> None:
    made = await run_loop([ANSWER], row=row(None), method="longvt")
    assert made.trajectory.flags == ["row_error"] and "text alone" in str(made.trajectory.error)


def test_validation_knows_such_rows(paths: list[str], tmp_path: Path) -> None:
    gone = row([*paths, str(tmp_path / "gone.png")])
    rows = [row(paths), gone, row(None), {**row(paths), "agent_name": "framethinker"}]
    rows = [{**one, "agent_name": one.get("agent_name", "longvt")} for one in rows]
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    reports = list(validate_file(file, methods=RowMethods()))
    assert [report.problems for report in reports[:3:2]] == [(), ()]
    assert reports[1].problems == (f"no such image file: {tmp_path / 'gone.png'}",)
    (problem,) = reports[3].problems
    assert "framethinker does not ask about pictures" in problem


def test_replay_and_viewer(paths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    extra = {"image_paths": paths, "options": ["left", "right"]}
    result = replay("direct", None, QUESTION, "A", [ANSWER], extra, html=page)
    assert (result["video"], result["reward"]["score"], len(result["initial_frames"])) == (None, 1.0, 2)
    assert page.exists()
    turns = tmp_path / "turns.json"
    turns.write_text(json.dumps([ANSWER]))
    command = ["replay", "--method", "direct", "--question", QUESTION, "--answer", "A", "--turns", str(turns)]
    assert vvt([*command, "--extra", json.dumps({"visuals": "none"})]) == 0
    assert json.loads(capsys.readouterr().out)["reward"]["score"] == 1.0
    assert vvt(command) == 2
    assert "give --video" in capsys.readouterr().err


def test_the_viewers_page_takes_the_record(tmp_path: Path) -> None:
    trajectory = Trajectory("direct", QUESTION, visuals="none", stop_reason=StopReason.ANSWER, answer="A")
    assert write_html([{"trajectory": trajectory}], tmp_path / "page.html", title="none") > 0
