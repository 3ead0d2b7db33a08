"""`vvt eval --cache`: the same request is made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import chat_reply, scripted, texts_of
from tests.evaluation.eval_command import BOAT, SCRIPTS, WHEEL, command, result_of, serving
from tests.judge_server import JudgeServer, Reply
from tests.verl_plugin.harness import model_dir
from verl_video_tools.cli.main import run
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.evaluation import serve
from verl_video_tools.records.records import read_records
from verl_video_tools.services.endpoint.chat import Completion
from verl_video_tools.services.endpoint.reply_cache import ReplyCache

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

GOOD = scripted(SCRIPTS)
BODY = {"model": "m", "messages": [{"role": "user", "content": "?"}], "temperature": 0.0}


def said(out: Path) -> dict[str, list[str]]:
    """The turns of each item."""
    records = read_records(out / "rollouts.jsonl")
    return {record["uid"]: [turn.text for turn in record["trajectory"].turns] for record in records}


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--temperature=0.7", "--seed=3")])
def test_a_second_evaluation_asks_nothing(video_mme: BenchmarkFiles, tmp_path: Path, options: tuple[str, ...]) -> None:
    cached = (*options, f"--cache={tmp_path / 'kept'}")
    with JudgeServer(reply=GOOD) as server:
        assert run(command(video_mme, tmp_path / "one", server, *cached)) == 0
        assert len(server.requests) == 6
        server.reply = lambda request: Reply(b"{}", status=500)
        assert run(command(video_mme, tmp_path / "two", server, *cached)) == 0
        assert len(server.requests) == 6
    assert said(tmp_path / "one") == said(tmp_path / "two")
    results = [(tmp_path / name / "results.json").read_bytes() for name in ("one", "two")]
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((), ("--set=max_turn_tokens=100",)),
        ((), ("--top-p=0.9",)),
        ((), ("--jpeg-quality=90",)),
        (("--seed=3",), ("--seed=4",)),
        ((), ("--model=other",)),
    ],
)
def test_what_was_asked_otherwise_is_asked(
    video_mme: BenchmarkFiles, tmp_path: Path, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    cache = f"--cache={tmp_path / 'kept'}"
    with JudgeServer(reply=GOOD) as server:
        assert run(command(video_mme, tmp_path / "one", server, cache, *first)) == 0
        assert run(command(video_mme, tmp_path / "two", server, cache, *second)) == 0
        assert len(server.requests) == 12


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_reply_that_the_server_did_not_finish_is_no_answer(
    video_mme: BenchmarkFiles, tmp_path: Path, reason: str
) -> None:
    """vLLM sends what there is, as a success, when it is stopped; it would be graded, and kept."""
    kept, stopped = tmp_path / "kept", True

    def reply(request: dict[str, Any]) -> Reply:
        return chat_reply("<think>I", reason) if stopped and BOAT in str(request["messages"]) else GOOD(request)

    with JudgeServer(reply=reply) as server:
        line = command(video_mme, tmp_path / "out", server, f"--cache={kept}", "--deadline-seconds=2")
        assert run(line) == 0
        assert result_of(tmp_path / "out")["overall"]["failed"] == 1
        stopped = False
        assert run(line) == 0
    overall = result_of(tmp_path / "out")["overall"]
    assert (overall["failed"], overall["accuracy"]) == (0, pytest.approx(2 / 3))


def test_replies_that_would_not_be_kept_are_refused(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=GOOD) as server:
        line = [*command(video_mme, tmp_path / "one", server, f"--cache={tmp_path / 'kept'}"), "--temperature=0.7"]
        assert run(line) == 2 and not server.requests
        assert "give --seed, or --temperature 0" in capsys.readouterr().err
        assert run([*line, "--repeats=2"]) == 0  # which have seeds


@pytest.mark.slow
def test_without_a_cache_nothing_is_kept(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer(reply=GOOD) as server:
        assert run(command(video_mme, tmp_path / "one", server)) == 0
        assert run(command(video_mme, tmp_path / "two", server)) == 0
        assert len(server.requests) == 12


def test_failures_are_not_kept(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    def half_broken(request: dict[str, Any]) -> Reply:
        return Reply(b"{}", status=500) if WHEEL in texts_of(request["messages"][1]) else GOOD(request)

    with JudgeServer(reply=half_broken) as server:
        options = (f"--cache={tmp_path / 'kept'}", "--deadline-seconds=2")
        assert run(command(video_mme, tmp_path / "one", server, *options)) == 0
        assert result_of(tmp_path / "one")["overall"]["failed"] == 1
        server.reply = GOOD
        server.requests.clear()
        assert run(command(video_mme, tmp_path / "two", server, *options)) == 0
        assert [WHEEL in texts_of(request["messages"][1]) for request in server.requests] == [True, True]
    assert result_of(tmp_path / "two")["overall"]["failed"] == 0


@pytest.mark.slow
def test_a_served_model_is_known_by_its_files(
    video_mme: BenchmarkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with JudgeServer(reply=GOOD) as server:
        monkeypatch.setattr(serve, "served_model", serving(server, []))
        line = [part for part in command(video_mme, tmp_path, server) if not part.startswith(("--base-url", "--out"))]
        line += [f"--serve={model_dir()}", f"--cache={tmp_path / 'kept'}"]
        for name in ("one", "two"):
            assert run([*line, f"--model={name}", f"--out={tmp_path / name}"]) == 0
        assert len(server.requests) == 6


def test_a_reply_is_kept_as_it_was(tmp_path: Path) -> None:
    kept, completion = ReplyCache(tmp_path), Completion("<answer>B</answer>", "stop", num_tokens=7)
    digest = kept.digest(BODY, "m")
    assert digest is not None and digest != kept.digest(BODY, "n")
    kept.put(digest, completion)
    assert kept.get(digest) == completion


def test_what_may_be_answered_otherwise_has_no_digest(tmp_path: Path) -> None:
    sampled = {**BODY, "temperature": 0.5}
    assert ReplyCache.digest(sampled, "m") is None
    assert ReplyCache.digest({**sampled, "seed": 1}, "m") is not None
    assert ReplyCache.digest({"messages": []}, "m") is None
