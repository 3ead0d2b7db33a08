"""Subtitles between frames, from rows to the request, the record and the rows made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chat_server import scripted, texts_of
from tests.judge_server import JudgeServer
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import Message, RolloutLimits, Sample, StopReason, content_text
from verl_video_tools.data.export_rollouts import export_rollouts
from verl_video_tools.data.rows import make_row
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.episode import Episode

pytest.importorskip("openai", reason="the extra `judge` is not installed")

SCRIPTS = {"When the subtitle names": ["<answer>C</answer>"], "What follows": ["<answer>A</answer>"]}
ASKED = (
    "When the subtitle names the kiln, what lies on the table?\nA. a cup\nB. a knife\nC. a towel\n\n"
    "frame 0 at 0.00 s: <image>\nframe 49 at 1.63 s: <image>\nFirst the clay.\nframe 99 at 3.30 s: <image>\n"
    "Now the kiln."
)


def write_rows(path: Path, video: str, captions: Sequence[tuple[float, float, str]]) -> None:
    """Rows about a video of 3.3 s; the first one's question has subtitles."""
    questions = [("When the subtitle names the kiln, what lies on the table?", "C"), ("What follows?", "A")]
    rows: list[dict[str, Any]] = [
        make_row(question, answer, video, options=["a cup", "a knife", "a towel"]) for question, answer in questions
    ]
    names = ("start_seconds", "end_seconds", "text")
    rows[0]["extra_info"]["subtitles"] = [dict(zip(names, caption, strict=True)) for caption in captions]
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_what_is_asked_is_what_is_recorded_and_taught(
    tmp_path: Path, make_video: MakeVideo, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = tmp_path / "rows.parquet", tmp_path / "out"
    write_rows(rows, str(make_video(100)), [(1.4, 2.0, "First the clay."), (3.0, 4.0, "Now the kiln.")])
    line = ["eval", f"--rows={rows}", "--method=direct", "--set=initial_frames=3", f"--out={out}"]
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run([*line, f"--base-url={server.base_url}"]) == 0
        asked = {texts_of(request["messages"][1]) for request in server.requests}
    assert ASKED in asked and len(asked) == 2

    export_rollouts(out / "rollouts.jsonl", tmp_path / "sft.parquet", min_iou=0.0)
    replayed = {asked_of(row) for row in pq.read_table(tmp_path / "sft.parquet").to_pylist()}
    assert replayed == asked

    write_rows(rows, str(make_video(100)), [(0.0, 1.0, "Rain.")])
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
