"""Replay: what it takes, what it refuses, and what it tells of videos, judges and rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.group_method import PATH as PATH_OF_GROUPS
from tests.group_method import FrameThinkerInGroups
from tests.judge_server import JudgeServer, Reply
from tests.methods.framethinker.scripted import ANSWER, QUESTION, run
from tests.turns.framethinker import turn
from tests.videos.files import MakeVideo
from tests.viewer_page import Page
from verl_video_tools.cli.main import run as vvt
from verl_video_tools.core.errors import UsageError
from verl_video_tools.replay import areplay, replay
from verl_video_tools.services.judge import JudgeConfig


@pytest.mark.parametrize("content", [None, b"", b"not a video"])
def test_unreadable_video(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "video.mp4"
    if content is not None:
        path.write_bytes(content)
    result = run(str(path), [ANSWER])
    assert (result["stop_reason"], result["video"], result["turns"]) == ("video_error", None, [])
    assert set(result["reward"].values()) == {0.0}
    assert result["counts"]["assistant_turns"] == 0
    assert str(path) in result["error"]


@pytest.mark.parametrize("name", ["loop.mp4", "a\0b.mp4"])
def test_a_path_that_can_be_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    assert run(str(tmp_path / name), [ANSWER])["stop_reason"] == "video_error"


def test_an_odd_judge_is_one_clear_line(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str], short_backoff: None
) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    turns = tmp_path / "turns.json"
    turns.write_text(json.dumps(["<think>ok</think><action>output answer: a dog</action>"]))
    command = ["replay", "--method", "framethinker", "--set", "ccv=false", "--question", "What animal?"]
    with JudgeServer(models_reply=Reply(b"<html>\n<b>busy</b>\n</html>", content_type="text/html")) as server:
        options = ["--answer", "a cat", "--turns", str(turns), "--judge-base-url", server.base_url]
        assert vvt([*command, "--video", make_video(), *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vvt: JudgeError: no verdict from the judge: http://127.0.0.1")
    assert "GET /models lists no model: '<html>" in line


@pytest.mark.parametrize(("answer", "score"), [("a cat", 1.0), ("dog", 0.0)])
def test_an_open_question_is_judged(make_video: MakeVideo, answer: str, score: float) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    turns = [turn("done", f"output answer: {answer}")]
    with JudgeServer() as server:
        judge = JudgeConfig(base_url=server.base_url)
        result = replay("framethinker", make_video(), "What animal?", "cat", turns, judge=judge)
    assert (result["reward"]["score"], len(server.requests)) == (score, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "framebrain"}, "no method 'framebrain'"),
        ({"settings": {"turns": 3}}, "no field 'turns'"),
        ({"settings": {"max_turns": "many"}}, "max_turns"),
        ({"question": ""}, "question is missing or empty"),
        ({"turns": "text"}, "list of assistant texts"),
        ({"turns": [1]}, "list of assistant texts"),
        ({"extra": {"question_type": "essay"}}, "question_type must be one of"),
        ({"extra": {"options": "{"}}, "row does not make sense"),
        ({"extra": {"video_segment": [1]}}, "row does not make sense"),
        ({"extra": {"question_type": "open"}}, "needs a judge"),
        ({"answer": "a dog"}, "needs a judge"),
    ],
)
def test_bad_usage(make_video: MakeVideo, changes: dict[str, Any], message: str) -> None:
    arguments = {
        "method": "framethinker",
        "video": make_video(),
        "question": QUESTION,
        "answer": "B",
        "turns": [ANSWER],
    }
    with pytest.raises(UsageError, match=message):
        replay(**{**arguments, **changes})


def test_extra_and_settings_reach_row_and_method(make_video: MakeVideo) -> None:
    result = replay(
        "framethinker",
        make_video(),
        QUESTION,
        "B",
        [turn("done", "output answer: a goal")],
        extra={"options": ["nothing", "a goal"]},
        settings={"answer_grading": "choice", "accuracy_reward": 3},
    )
    assert result["reward"]["score"] == 3.0


async def test_inside_an_event_loop(make_video: MakeVideo) -> None:
    result = await areplay("framethinker", make_video(), QUESTION, "B", [ANSWER])
    assert result["reward"]["score"] == 1.0


async def test_what_needs_a_group_is_said_to_be_not_scored(make_video: MakeVideo, tmp_path: Path) -> None:
    out = tmp_path / "view.html"
    result = await areplay(PATH_OF_GROUPS, make_video(), QUESTION, "B", [ANSWER], html=out)
    assert result["not_scored"] == ["curiosity", "length"]
    assert result["reward"].keys() == {"score", *FrameThinkerInGroups.reward_components}  # the keys are always there
    assert Page(out.read_text(encoding="utf-8")).blocks["rollout-0"]["not_scored"] == ["curiosity", "length"]
    alone = await areplay("framethinker", make_video(), QUESTION, "B", [ANSWER], html=out)
    assert "not_scored" not in alone
    assert Page(out.read_text(encoding="utf-8")).blocks["rollout-0"]["not_scored"] == []
