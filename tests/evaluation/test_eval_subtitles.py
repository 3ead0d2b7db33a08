"""Subtitles between frames, from LongVideoBench's files to the request, the record and the rows made from it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.chat_server import scripted, texts_of
from tests.data.format_cases import SAMPLES
from tests.evaluation.eval_command import result_of
from tests.judge_server import JudgeServer
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import Message, RolloutLimits, Sample, StopReason, content_text
from verl_video_tools.data.export_rollouts import export_rollouts
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode

pytest.importorskip("openai", reason="the extra `judge` is not installed")

SCRIPTS = {"When the subtitle names": ["<answer>C</answer>"], "What follows": ["<answer>A</answer>"]}
ASKED = (
    "When the subtitle names the kiln, what lies on the table?\nA. a cup\nB. a knife\nC. a towel\n\n"
    "frame 0 at 0.00 s: <image>\nframe 49 at 1.63 s: <image>\nFirst the clay.\nframe 99 at 3.30 s: <image>\n"
    "Now the kiln."
)


@pytest.fixture
def line(tmp_path: Path, make_video: MakeVideo) -> list[str]:
    """The command on a copy of the sample, whose video lasts 3.3 s, without an endpoint."""
    shutil.copytree(SAMPLES / "longvideobench", tmp_path / "lvb")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "pottery.mp4").symlink_to(make_video(100))
    (tmp_path / "lvb" / "subtitles" / "pottery_en.json").write_text(
        json.dumps(
            [
                {"start": "00:00:01.400", "end": "00:00:02.000", "line": "First the clay."},
                {"start": "00:00:03.000", "end": "00:00:41.000", "line": "Now the kiln."},
            ]
        )
    )
    files = [f"--annotations={tmp_path}/lvb/lvb_val.json", f"--subtitles={tmp_path}/lvb/subtitles"]
    method = ["--method=direct", "--set=initial_frames=3", f"--videos={tmp_path}/videos", f"--out={tmp_path}/out"]
    return ["eval", "--benchmark=longvideobench", *files, *method]


def test_what_is_asked_is_what_is_recorded_and_taught(
    line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run([*line, f"--base-url={server.base_url}"]) == 0
        asked = {texts_of(request["messages"][1]) for request in server.requests}
    assert ASKED in asked and len(asked) == 2
    protocol = result_of(tmp_path / "out")["protocol"]
    assert (protocol["subtitles"], protocol["items_with_subtitles"]) == ("all, between the frames", 2)

    export_rollouts(tmp_path / "out" / "rollouts.jsonl", tmp_path / "sft.parquet", min_iou=0.0)
    replayed = {asked_of(row) for row in pq.read_table(tmp_path / "sft.parquet").to_pylist()}
    assert replayed == asked

    (tmp_path / "lvb" / "subtitles" / "pottery_en.json").write_text("[]")
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run([*line, f"--base-url={server.base_url}"]) == 2
    assert "extra_info.subtitles was [{" in capsys.readouterr().err, "other subtitles are another question"


def asked_of(row: dict[str, object]) -> str:
    """What a row for fine-tuning shows at first, as its replay makes it."""
    messages = asyncio.run(Episode(get_method("direct", initial_frames=3), Sample.from_row(row)).start())
    assert messages is not None
    return content_text(messages[1].content)


class Counting:
    """A budget that remembers what it was asked about."""

    limits = RolloutLimits(0, 0, 0)

    def __init__(self) -> None:
        self.texts: list[str] = []

    def refuses_prompt(self, messages: Sequence[Message]) -> StopReason | None:
        self.texts.append(content_text(messages[-1].content))
        return StopReason.PROMPT_BUDGET

    def refuses_observation(self, observation: object) -> StopReason | None:
        raise AssertionError("nothing was observed")


async def test_budgets_count_subtitles(make_video: MakeVideo) -> None:
    extra_info = {
        "question": "What?",
        "video_path": str(make_video(100)),
        "subtitles": [{"start_seconds": 0.0, "end_seconds": 1.0, "text": "Hello."}],
    }
    sample = Sample.from_row({"extra_info": extra_info, "reward_model": {"ground_truth": "x"}})
    budget = Counting()
    assert await Episode(get_method("direct", initial_frames=1), sample, budget=budget).start() is None
    assert budget.texts == ["What?\n\nframe 0 at 0.00 s: <image>\nHello."]
