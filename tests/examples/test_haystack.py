"""examples/haystack: from videos to rows, with a server that plays the models."""

from __future__ import annotations

import json
import runpy
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("openai", reason="the extra `judge` is not installed")

from tests.chat_server import chat_reply, pictures_of, texts_of
from tests.examples.conftest import EXAMPLES
from tests.judge_server import JudgeServer, Reply
from verl_video_tools.core.types import Sample

SCRIPT = EXAMPLES / "haystack" / "haystack.py"
HAYSTACK = runpy.run_path(str(SCRIPT))
COLOURS = {"red": (220, 30, 30), "green": (30, 120, 30), "blue": (90, 90, 240)}
PROMPTS = {HAYSTACK[name]: name for name in ("CAPTION", "QUESTIONS", "TEXT_CHECK", "FRAME_CHECK")}
WRITTEN = [
    {"question": "Which colour comes after red?", "answer": "green", "first_part": 2, "last_part": 2},
    {"question": "Which colour does the wall have last?", "answer": "yellow", "first_part": 6, "last_part": 6},
    {"question": "What is unclear?", "answer": "everything", "first_part": 1, "last_part": 1},
]


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Two rounds of red, green and blue, 12 s each, and a file that is no video."""
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "broken.mp4").write_bytes(b"no video")
    with av.open(str(folder / "scenes.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=4, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        stream.codec_context.thread_count = 1
        for colour in (*COLOURS.values(), *COLOURS.values()):
            picture = np.full((32, 32, 3), colour, np.uint8)
            for _ in range(48):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return folder


def role(request: dict[str, Any]) -> str:
    return PROMPTS[texts_of(request["messages"][0])]


def honest(request: dict[str, Any]) -> Reply:
    content = request["messages"][1]
    shown = [np.asarray(picture).mean(axis=(0, 1)) for picture in pictures_of(content)]
    colours = {min(COLOURS, key=lambda name: np.abs(colour - COLOURS[name]).sum()) for colour in shown}
    match role(request):
        case "CAPTION":
            (colour,) = colours
            return chat_reply(f"<think>hm</think>The wall is {colour}.")
        case "QUESTIONS":
            assert texts_of(content).startswith(
                "1. 0.0 to 12.0 s: The wall is red.\n\n2. 12.0 to 24.0 s: The wall is green."
            )
            return chat_reply(f"Here they are: {json.dumps(WRITTEN)}")
        case "TEXT_CHECK":
            return chat_reply(json.dumps({"score": int("unclear" not in texts_of(content))}))
        case _:
            return chat_reply(json.dumps({"score": float(texts_of(content).endswith(f"Answer: {''.join(colours)}"))}))


def run(monkeypatch: pytest.MonkeyPatch, videos: Path, *options: str) -> list[dict[str, Any]]:
    out = videos.parent / "rows.parquet"
    arguments = [str(SCRIPT), str(videos), str(out), "--min-seconds", "60", *options]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return pq.read_table(out).to_pylist()


@pytest.mark.slow
def test_from_videos_to_rows_and_on(
    videos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(honest) as server, JudgeServer(honest) as checker:
        options = ["--base-url", server.base_url, "--check-url", checker.base_url]
        (row,) = run(monkeypatch, videos, *options)
        roles = [Counter(map(role, each.requests)) for each in (server, checker)]
        assert run(monkeypatch, videos, *options) == [row]
        assert [Counter(map(role, each.requests)) for each in (server, checker)] == roles, "the video is finished"
    assert roles == [{"CAPTION": 6, "QUESTIONS": 1, "TEXT_CHECK": 3}, {"FRAME_CHECK": 2}]
    sample = Sample.from_row(row)
    assert (row["agent_name"], sample.question, sample.ground_truth) == ("longvt", WRITTEN[0]["question"], "green")
    assert (sample.question_type, sample.video_segment_seconds) == ("open", (12.0, 24.0))
    assert sample.video_path == str(videos / "scenes.mp4")
    printed = capsys.readouterr().out
    assert "skipped:" in printed and "broken.mp4" in printed and "rows.parquet: 1 rows" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("QUESTIONS", "I have none."),
        ("QUESTIONS", json.dumps([{**WRITTEN[0], "last_part": 9}])),
        ("QUESTIONS", json.dumps([{**WRITTEN[0], "question": "What is \ud83d?"}])),
        ("TEXT_CHECK", '{"keep": true}'),
        ("FRAME_CHECK", '{"score": 7}'),
    ],
)
def test_an_unusable_reply_is_answered(videos: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    def stubborn(request: dict[str, Any]) -> Reply:
        is_first = role(request) == name and len(request["messages"]) == 2
        return chat_reply(text) if is_first else honest(request)

    with JudgeServer(stubborn) as server:
        assert len(run(monkeypatch, videos, "--base-url", server.base_url)) == 1
        again = [request for request in server.requests if len(request["messages"]) > 2]
    assert again and all(role(request) == name for request in again)


@pytest.mark.slow
def test_no_question_is_left(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(request: dict[str, Any]) -> Reply:
        return chat_reply("[]") if role(request) == "QUESTIONS" else honest(request)

    with JudgeServer(silent) as server, pytest.raises(SystemExit, match="no question passed the checks"):
        run(monkeypatch, videos, "--base-url", server.base_url)


@given(st.lists(st.floats(0.1, 900.0), max_size=30).map(sorted), st.floats(901.0, 4000.0))
def test_parts_cover_the_video_and_have_their_lengths(cuts: list[float], duration: float) -> None:
    parts = HAYSTACK["make_parts"](cuts, duration)
    assert parts[0][0] == 0.0 and parts[-1][1] == duration
    assert all(end == start for (_, end), (start, _) in pairwise(parts))
    assert all(10.0 - 1e-9 <= end - start <= 60.0 + 1e-9 for start, end in parts)


@pytest.mark.parametrize(
    ("question", "answer", "is_easy"),
    [
        ("What does she put on the counter?", "a paper bag", False),
        ("Is the door open?", "Yes.", True),
        ("Which car is the red car?", "Red", True),
        ("What happens at 2:30?", "a jump", True),
        ("What is in the frames?", "a dog", True),
    ],
)
def test_rules_drop_easy_questions(question: str, answer: str, is_easy: bool) -> None:
    assert HAYSTACK["is_easy"](question, answer) is is_easy
