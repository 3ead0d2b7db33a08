"""`vvt replay`: how options become arguments, what goes to which stream, and what is bad usage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import verl_video_tools.replay
from tests.videos.files import write_video
from verl_video_tools.cli.main import run
from verl_video_tools.cli.records import read_turns
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.services.judge import JudgeConfig


@pytest.fixture
def turns_file(tmp_path: Path) -> Path:
    path = tmp_path / "turns.json"
    path.write_text(json.dumps(["<think>B</think>", "second"]))
    return path


def arguments(turns: Path | str, *more: str) -> list[str]:
    return [
        "replay",
        "--method",
        "m",
        "--video",
        "v.mp4",
        "--question",
        "q?",
        "--answer",
        "B",
        "--turns",
        str(turns),
        *more,
    ]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replaces the replay itself by a recorder."""
    recorded: list[dict[str, Any]] = []

    def replay(**options: Any) -> dict[str, Any]:
        recorded.append(options)
        return {"method": options["method"]}

    monkeypatch.setattr(verl_video_tools.replay, "replay", replay)
    return recorded


def test_options_reach_the_function(turns_file: Path, calls: list[dict[str, Any]]) -> None:
    more = ["--extra", '{"question_type": "mc"}', "--set", "compat=reference", "--set", "max_turns=3"]
    more += ["--set", "note=a=b", "--processor", "folder", "--judge-base-url", "http://judge/v1"]
    more += ["--judge", "model=m", "--judge", "profile=longvt", "--method", "framethinker"]
    assert run(arguments(turns_file, *more)) == 0
    assert calls == [
        {
            "method": "framethinker",
            "video": "v.mp4",
            "question": "q?",
            "answer": "B",
            "turns": ["<think>B</think>", "second"],
            "extra": {"question_type": "mc"},
            "settings": {"compat": "reference", "max_turns": 3, "note": "a=b"},
            "processor": "folder",
            "judge": JudgeConfig(base_url="http://judge/v1", model="m", profile="longvt"),
            "retriever": None,
            "html": None,
            "tool_model": None,
        }
    ]


@pytest.mark.parametrize("name", ["nodir", "no/dir"])
def test_a_mistyped_model_fails_at_once(name: str, turns_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    assert run(arguments(turns_file, "--processor", name, "--method", "longvt")) == 2
    assert time.monotonic() - started < 30
    assert f"model '{name}' is no folder here" in capsys.readouterr().err


NOISY_REPLAY = """
import os, sys
import verl_video_tools.replay
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import UsageError

def replay(*, answer, **options):
    print("noise of a library")
    print("its warning", file=sys.stderr)
    os.write(1, b"noise below Python\\n")
    return outcomes[answer]()

def fails(error):
    raise error

outcomes = {
    "json": lambda: {"text": "\\ud83d and ü"},
    "not scored": lambda: {"not_scored": ["curiosity", "length"]},
    "usage": lambda: fails(UsageError("no method is called m;\\nknown: framethinker")),
    "bug": lambda: fails(RuntimeError("bug")),
}
verl_video_tools.replay.replay = replay
for name in outcomes:
    try:
        code = run([*sys.argv[1:], "--answer", name])
    except RuntimeError:
        code = "raised"
    for stream in (sys.stdout, sys.stderr):
        print("END", name, code, file=stream, flush=True)
"""


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str, str]]:
    """What replays end with, and write to both streams, that are as noisy as the libraries under them; by outcome. All
    in one process, but not in this one, where pytest has replaced the streams."""
    turns = tmp_path_factory.mktemp("noisy") / "turns.json"
    turns.write_text('["<think>B</think>"]')
    command = [sys.executable, "-c", NOISY_REPLAY, *arguments(turns)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    streams = [re.findall(r"(.*?)END ([a-z ]+) (\w+)\n", stream, re.DOTALL) for stream in (done.stdout, done.stderr)]
    return {name: (code, out, error) for (out, name, code), (error, _, _) in zip(*streams, strict=True)}


def test_only_json_on_standard_output(noisy: dict[str, tuple[str, str, str]]) -> None:
    code, out, error = noisy["json"]
    assert (code, json.loads(out)) == ("0", {"text": "\ud83d and ü"})
    assert sorted(error.splitlines()) == ["its warning", "noise below Python", "noise of a library"]


def test_what_was_not_scored_is_told_beside_the_json(noisy: dict[str, tuple[str, str, str]]) -> None:
    _, out, error = noisy["not scored"]
    assert json.loads(out) == {"not_scored": ["curiosity", "length"]}
    told = "not scored: curiosity, length (a rollout earns it beside the others of its group)"
    assert told in error.splitlines()


def test_usage_error_of_the_replay_is_one_line_without_noise(noisy: dict[str, tuple[str, str, str]]) -> None:
    assert noisy["usage"] == ("2", "", "vvt: no method is called m; known: framethinker\n")


def test_a_bug_is_not_bad_usage(noisy: dict[str, tuple[str, str, str]]) -> None:
    code, out, error = noisy["bug"]
    assert (code, out) == ("raised", "") and "its warning" in error


def test_a_mark_before_the_text_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text('["text"]', encoding="utf-8-sig")
    assert read_turns(path) == ["text"] and read_prompt("", "", path) == '["text"]'


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "No such file"),
        (b"[", "not a JSON file"),
        (b"\xff\xfe", "not a JSON file"),
        (b"[" * 100_000, "not a JSON file"),
        (b'"one text"', "list of strings"),
        (b'["text", 3]', "list of strings"),
    ],
)
def test_unusable_turns_file(
    tmp_path: Path, content: bytes | None, named: str, calls: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "turns.json"
    if content is not None:
        path.write_bytes(content)
    assert_bad_usage(arguments(path), named, capfd)
    assert calls == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--extra", "{"], "--extra"),
        (["--extra", "[1]"], "--extra"),
        (["--set", "compat"], "field=value"),
        (["--set", "=reference"], "field=value"),
        (["--set", "a=1", "--set", "a=2"], "twice"),
        (["--picture", "page.png"], "--picture"),
        (["stray"], "stray"),
    ],
)
def test_unusable_options(
    turns_file: Path, more: list[str], named: str, calls: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert_bad_usage(arguments(turns_file, *more), named, capfd)
    assert calls == []


@pytest.mark.parametrize("missing", ["--method", "--video", "--question", "--answer", "--turns"])
def test_missing_option(turns_file: Path, missing: str, capfd: pytest.CaptureFixture[str]) -> None:
    given = arguments(turns_file)
    position = given.index(missing)
    assert_bad_usage(given[:position] + given[position + 2 :], missing, capfd)


def assert_bad_usage(given: list[str], named: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(given) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vvt: ")
    assert captured.err.count("\n") == 1
    assert named in captured.err


@pytest.mark.slow
def test_real_replay_in_a_process_of_its_own(tmp_path: Path) -> None:
    """FrameThinker on a real file: one look, then the right answer."""
    video = tmp_path / "numbers.mp4"
    write_video(video, num_frames=300, fps=30)
    turns = tmp_path / "turns.json"
    look = "<think>Look between 100 and 200</think><action>choose frames between 100 and 200</action>"
    turns.write_text(json.dumps([look, "<think>B it is</think><action>output answer: B</action>"]))
    command = [sys.executable, "-m", "verl_video_tools.cli", "replay", "--method", "framethinker"]
    command += ["--video", str(video), "--question", "Which?\nA. one\nB. two", "--answer", "B", "--turns", str(turns)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["stop_reason"] == "answer"
    assert result["answer"] == "B"
    assert [call["ok"] for turn in result["turns"] for call in turn["calls"]] == [True]
    assert result["counts"] == {"assistant_turns": 2, "executed_calls": 1, "initial_frames": 8, "tool_frames": 8}
    assert result["reward"]["accuracy"] == 1.0


def test_a_field_that_the_method_does_not_have(turns_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = arguments(turns_file, "--method", "framethinker", "--set", "no_such_field=1")
    assert_bad_usage(given, "no_such_field", capfd)


def test_a_lost_rollout_is_told_and_exits_3(
    turns_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The whole object, one line on standard error."""
    broken = tmp_path / "broken.mp4"
    broken.write_text("no video")
    command = ["replay", "--method", "framethinker", "--question", "q?", "--answer", "B", "--turns", str(turns_file)]
    for path in (tmp_path / "gone.mp4", broken):
        assert run([*command, "--video", str(path)]) == 3
        captured = capfd.readouterr()
        result = json.loads(captured.out)
        assert (result["stop_reason"], set(result["reward"].values())) == ("video_error", {0.0})
        assert captured.err == f"vvt: video_error: {result['error']}\n"
        assert str(path) in result["error"]
