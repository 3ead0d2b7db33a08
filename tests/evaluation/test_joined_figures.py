"""Figures that join items, as a video with all its questions right, are of what was asked as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import scripted
from tests.data.format_cases import CASES, prepare
from tests.judge_server import JudgeServer, Reply
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run

pytest.importorskip("openai", reason="the extra `judge` is not installed")

FIGURE = "multiple_binary_accuracy"
PUBLISHED = f"{FIGURE}_published"
QUESTION = "Question {}: does a man walk?\nA. yes\nB. no"
FAILS = "x"
"""Of an answer: the endpoint refuses the request."""


def evaluated(answers: str, tmp_path: Path, make_video: MakeVideo, *options: str) -> dict[str, Any]:
    """Result of two videos with three questions each, whose truths are all A."""
    files = prepare(CASES["temporalbench"], tmp_path)
    (example, *_) = json.loads(files.annotations.read_text())
    entries = []
    for number in range(len(answers)):
        video = f"clip_{number // 3}.mp4"
        (files.videos / video).unlink(missing_ok=True)
        (files.videos / video).symlink_to(make_video(100))
        entries.append({**example, "idx": number, "video_name": video, "question": QUESTION.format(number), "GT": "A"})
    (annotations := tmp_path / "annotations.json").write_text(json.dumps(entries))
    scripts = {QUESTION.format(number): [f"<answer>{answer}</answer>"] for number, answer in enumerate(answers)}
    speaks = scripted(scripts)

    def reply(request: dict[str, Any]) -> Reply:
        failing = [QUESTION.format(number) for number, answer in enumerate(answers) if answer == FAILS]
        asked = json.dumps(request["messages"])
        if any(json.dumps(question)[1:-1] in asked for question in failing):
            return Reply(b"{}", status=400)
        return speaks(request)

    out = tmp_path / "out"
    with JudgeServer(reply=reply) as server:
        command = ["eval", "--benchmark=temporalbench", "--method=direct", "--set=initial_frames=2", f"--out={out}"]
        paths = [f"--annotations={annotations}", f"--videos={files.videos}", f"--base-url={server.base_url}"]
        assert run([*command, *paths, *options]) == 0
    return json.loads((out / "results.json").read_text())


@pytest.mark.parametrize(
    ("answers", "share"),
    [
        ("AAAAAB", 0.5),
        ("AAAAAx", 1.0),  # the second video is not known
        ("AABAAx", 0.0),  # and is not right without its failed question
    ],
)
def test_what_lacks_an_item_is_left_out(answers: str, share: float, tmp_path: Path, make_video: MakeVideo) -> None:
    result = evaluated(answers, tmp_path, make_video)
    assert result["overall"]["failed"] == answers.count(FAILS)
    assert result["overall"][FIGURE] == result["overall"][PUBLISHED] == share


@pytest.mark.parametrize("options", [("--limit=4",), ("--where=index=2",)])
def test_a_part_of_the_questions_has_no_such_figure(
    options: tuple[str, ...], tmp_path: Path, make_video: MakeVideo
) -> None:
    result = evaluated("AAAAAB", tmp_path, make_video, *options)
    assert result["overall"]["accuracy"] is not None
    assert not [name for name in result["overall"] if FIGURE in name]
    assert FIGURE not in (tmp_path / "out" / "table.csv").read_text()
