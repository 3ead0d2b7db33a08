"""`vvt chat` against a real HTTP server: what it tells and draws, several questions, and what fails."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chat_server import chat_reply, pictures_of, scripted
from tests.judge_server import MODEL, JudgeServer, Reply
from tests.turns.tagged import answer, think, tool_call, zoom
from tests.videos.files import MakeVideo
from tests.viewer_page import Page
from verl_video_tools.cli.main import run

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_backoff")]

KETTLE, DOOR = "What boils?", "Who opens the door?"
ZOOMER = ["--method=videozoomer", "--set=initial_frames=2"]


def chat(video: str, server: JudgeServer, out: Path, *options: str) -> int:
    return run(["chat", video, f"--base-url={server.base_url}", f"--out={out}", *options])


def serving(*turns: str, question: str = KETTLE) -> JudgeServer:
    return JudgeServer(reply=scripted({question: turns}))


def test_each_call_is_told_with_its_frames_and_then_the_answer(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [zoom(1, 3), zoom(7, 9999), answer("A red kettle.")]
    with serving(*turns) as server:
        assert chat(make_video(300), server, tmp_path, *ZOOMER, f"--question={KETTLE}", f"--model={MODEL}") == 0
        assert [request["model"] for request in server.requests] == [MODEL] * 3
        sent = [len(pictures_of(message)) for message in server.requests[-1]["messages"] if message["role"] == "user"]
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert told.err == ""
    assert lines[0] == "initial frames: 2 frames: 0 (0.00 s), 299 (9.97 s)"
    assert lines[1:4] == [
        "turn 1: so",
        '  video_zoom {"segment": [1, 3], "fps": 2}',
        "    4 frames: 30 (1.00 s), 50 (1.67 s), 70 (2.33 s), 90 (3.00 s)",
    ]
    assert lines[4:6] == ["turn 2: so", '  video_zoom {"segment": [7, 9999], "fps": 2}']
    assert lines[6].startswith("    refused: out_of_range: ")
    assert lines[7:] == ["turn 3: so", "answer: A red kettle.", f"page: {tmp_path}/question_1.html"]
    assert sent == [2, 4, 0]
    page = Page((tmp_path / "question_1.html").read_text())
    assert len(page.blocks["video-0"]) == 6 and page.blocks["rollout-0"]["trajectory"]["answer"] == "A red kettle."


def test_the_method_of_the_issue(make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crop = think(tool_call("crop_video", start_time=2, end_time=4))
    with serving(crop, answer("Steam.")) as server:
        assert chat(make_video(300), server, tmp_path, "--method=longvt", f"--question={KETTLE}") == 0
        assert server.requests[0]["model"] == MODEL, "the first that is served"
        assert server.requests[0]["temperature"] == 0.0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("initial frames: 10 frames: 0 (0.00 s) to ")
    assert lines[-2] == "answer: Steam."
    assert any(line.startswith("  crop_video {") for line in lines)
    assert "    2 frames: 60 (2.00 s), 120 (4.00 s)" in lines


@pytest.mark.parametrize("end", ["", "\n"])
def test_without_a_question_each_line_is_one(
    end: str, make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KETTLE}\n\n  {DOOR}  {end}"))
    scripts: dict[str, Sequence[str]] = {KETTLE: [answer("Tea.")], DOOR: [zoom(1, 3), answer("A cat.")]}
    with JudgeServer(reply=scripted(scripts)) as server:
        assert chat(make_video(300), server, tmp_path, *ZOOMER) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("answer: ")]
    assert told == ["answer: Tea.", "answer: A cat."]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["question_1.html", "question_2.html"]


@pytest.mark.parametrize("text", ["I do not know.", "<think>Hm.</think> <zoom>3 to 5</zoom>"])
def test_a_rollout_without_an_answer(
    text: str, make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(text) as server:
        assert chat(make_video(300), server, tmp_path, *ZOOMER, f"--question={KETTLE}") == 0
    assert capsys.readouterr().out.splitlines()[1:-1] == [
        f"turn 1: {text}",
        "no answer; the rollout ended with no_action",
    ]


def test_what_a_model_writes_cannot_steer_a_terminal(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = "\x1b[2Jred\r\n\x07green\u202e"
    call = think(tool_call("\x1b[31mnothing", text=wild), wild)
    with serving(call, answer(wild)) as server:
        options = ["--method=longvt", f"--question={KETTLE}"]
        assert chat(make_video(300), server, tmp_path, *options) == 0
    told = capsys.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in told)
    assert "answer: [2Jred green" in told and "refused: unknown_tool" in told


def test_a_video_that_cannot_be_read_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    with serving(answer("x")) as server:
        assert chat(str(tmp_path / "broken.mp4"), server, tmp_path, *ZOOMER, f"--question={KETTLE}") == 1
        assert server.requests == []
    told = capsys.readouterr()
    assert told.err.startswith("failed: video_error: ") and "answer" not in told.out


def test_an_endpoint_that_refuses_is_told(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = Reply(json.dumps({"error": {"message": "no such thing"}}).encode(), status=400)
    with JudgeServer(reply=lambda request: refusal) as server:
        assert chat(make_video(300), server, tmp_path, *ZOOMER, f"--question={KETTLE}") == 1
    assert "no such thing" in capsys.readouterr().err


def test_one_question_of_several_that_fails_decides_the_exit_code(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KETTLE}\n{DOOR}\n"))
    reply = scripted({DOOR: [answer("A cat.")]})
    refusal = Reply(json.dumps({"error": {"message": "no such thing"}}).encode(), status=400)
    with JudgeServer(reply=lambda request: refusal if KETTLE in json.dumps(request) else reply(request)) as server:
        assert chat(make_video(300), server, tmp_path, *ZOOMER) == 1
    told = capsys.readouterr()
    assert told.err.count("failed: ") == 1 and "no such thing" in told.err
    assert told.out.splitlines()[-2] == "answer: A cat."


def test_an_endpoint_that_is_not_there(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer() as server:
        pass
    assert chat(make_video(300), server, tmp_path, *ZOOMER, f"--question={KETTLE}") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vvt: EndpointError: ") and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method=videobrain"], "videobrain searches for frames by text; name its encoder"),
        (["--method=zoom"], "zoom"),
        (["--method=longvt", "--set=no_such=1"], "no_such"),
        (["--method=longvt", "--min-pixels=784"], "name the model"),
    ],
)
def test_bad_usage(
    options: list[str], message: str, make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(answer("x")) as server:
        assert chat(make_video(300), server, tmp_path, f"--question={KETTLE}", *options) == 2
        assert server.requests == []
    assert message in capsys.readouterr().err


def test_a_video_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert chat(str(tmp_path / "no.mp4"), server, tmp_path, *ZOOMER, f"--question={KETTLE}") == 2
    assert "no such video file: " in capsys.readouterr().err


def test_an_address_that_is_none(make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chat", make_video(300), "--base-url=localhost", f"--question={KETTLE}", *ZOOMER]) == 2
    assert "http://" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either --base-url or --serve"),
        (["--base-url=http://localhost:1/v1", "--serve=model"], "give either --base-url or --serve"),
        (["--base-url=http://localhost:1/v1", "--serve-option=x=1"], "--serve-option belongs to --serve"),
    ],
)
def test_one_server_is_asked(
    make_video: MakeVideo, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["chat", make_video(300), f"--question={KETTLE}", *ZOOMER, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with serving(answer("x")) as server:
        assert chat(make_video(300), server, tmp_path / "file", *ZOOMER, f"--question={KETTLE}") == 2
    assert "give another --out" in capsys.readouterr().err


def test_reasoning_that_a_server_takes_apart_is_told(
    make_video: MakeVideo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(request: dict[str, object]) -> Reply:
        body = json.loads(chat_reply("<answer>Tea.</answer>").body or b"")
        body["choices"][0]["message"]["reasoning_content"] = "It is hot."
        return Reply(json.dumps(body).encode())

    with JudgeServer(reply=reply) as server:
        assert chat(make_video(300), server, tmp_path, *ZOOMER, f"--question={KETTLE}") == 0
    assert "turn 1: It is hot." in capsys.readouterr().out
