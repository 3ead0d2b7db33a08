"""`vvt eval --attempts`: FrameThinker's verification, retry and answer-only fallback."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import chat_reply, texts_of
from tests.evaluation.eval_command import BOAT, BOWLS, WHEEL, command, result_of
from tests.judge_server import JudgeServer, Reply
from tests.turns.framethinker import answer, choose
from verl_video_tools.cli.main import run
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

TWICE = [choose(10, 60), choose(10, 60), answer("C")]
"""Redundant: the segment was chosen before."""
ATTEMPTS = {
    BOWLS: [[answer("C")]],  # right at once
    WHEEL: [TWICE, [choose(10, 60), answer("B")]],  # inconsistent, then right
    BOAT: [["no action at all"], TWICE, ["no action at all"]],  # never an answer that counts
}
"""Turns of each attempt, by question."""


class Model:
    """Follows the scripts, and remembers the requests that began an attempt."""

    def __init__(self) -> None:
        self.begun: dict[str, list[dict[str, Any]]] = {question: [] for question in ATTEMPTS}

    def __call__(self, request: dict[str, Any]) -> Reply:
        messages = request["messages"]
        question = next(question for question in ATTEMPTS if question in texts_of(messages[1]))
        turn = sum(message["role"] == "assistant" for message in messages)
        if turn == 0:
            self.begun[question].append(request)
        return chat_reply(ATTEMPTS[question][len(self.begun[question]) - 1][turn])


def line(files: BenchmarkFiles, out: Path, server: JudgeServer, *options: str) -> list[str]:
    parts = [part for part in command(files, out, server) if not part.startswith(("--method", "--set"))]
    return [*parts, "--method=framethinker", "--temperature=0.6", "--seed=3", *options]


def test_a_question_is_asked_until_an_answer_counts(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    model = Model()
    with JudgeServer(reply=model) as server:
        assert run(line(video_mme, tmp_path / "out", server, "--attempts=3")) == 0
        asked = len(server.requests)
        assert run(line(video_mme, tmp_path / "out", server, "--attempts=3")) == 0  # nothing is left
        assert len(server.requests) == asked
    records = {record["extra_info"]["question"]: record for record in read_records(tmp_path / "out/rollouts.jsonl")}
    told = {question: record for question in ATTEMPTS for key, record in records.items() if question in key}
    assert [told[question]["attempt_taken"] for question in ATTEMPTS] == [1, 2, None]
    assert [len(told[question]["attempts"]) for question in ATTEMPTS] == [1, 2, 3]
    faults = [[attempt["fault"] for attempt in told[question]["attempts"]] for question in ATTEMPTS]
    redundant = "redundancy: turn 2: segment 10-60 was chosen before"
    assert faults == [[None], [redundant, None], ["no answer", redundant, "no answer"]]
    assert [told[question]["trajectory"].answer for question in ATTEMPTS] == ["C", "B", None]
    assert told[WHEEL]["num_generated_tokens"] == 7 * 5  # of both attempts, five turns
    assert told[WHEEL]["trajectory"].settings == {"ccv_profile": "inference"}
    assert told[BOAT]["trajectory"].settings == {"ccv_profile": "inference", "answer_only": True}

    result = result_of(tmp_path / "out")
    assert (result["overall"]["accuracy"], result["overall"]["failed"]) == (2 / 3, 0)
    assert result["protocol"]["attempts"] == 3


def test_the_last_attempt_asks_for_an_answer_alone_and_each_has_a_seed(
    video_mme: BenchmarkFiles, tmp_path: Path
) -> None:
    model = Model()
    with JudgeServer(reply=model) as server:
        assert run(line(video_mme, tmp_path / "out", server, "--attempts=3")) == 0
    begun = model.begun[BOAT]
    offers_zoom = ["choose frames" in texts_of(request["messages"][0]) for request in begun]
    assert offers_zoom == [True, True, False]
    assert begun[0]["messages"][1] == begun[2]["messages"][1], "the same initial frames"
    assert len({request["seed"] for request in begun}) == 3


def test_one_attempt_verifies_nothing(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    model = Model()
    with JudgeServer(reply=model) as server:
        assert run(line(video_mme, tmp_path / "out", server)) == 0
    assert Counter({question: len(begun) for question, begun in model.begun.items()}).total() == 3
    assert all("attempts" not in record for record in read_records(tmp_path / "out/rollouts.jsonl"))
    assert result_of(tmp_path / "out")["protocol"]["attempts"] == 1


@pytest.mark.slow
def test_an_endpoint_that_fails_is_no_failed_attempt(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    model = Model()

    def failing(request: dict[str, Any]) -> Reply:
        return Reply(b"{}", 500) if WHEEL in texts_of(request["messages"][1]) else model(request)

    with JudgeServer(reply=failing) as server:
        options = ("--attempts=3", "--deadline-seconds=2")
        assert run(line(video_mme, tmp_path / "out", server, *options)) == 0
        (failure,) = result_of(tmp_path / "out")["failures"]
        assert failure["flags"] == ["aborted"] and "HTTP 500" in failure["reason"]
        server.reply = model
        assert run(line(video_mme, tmp_path / "out", server, *options)) == 0
    assert result_of(tmp_path / "out")["overall"]["failed"] == 0


def test_methods_of_one_attempt_refuse_more(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer() as server:
        assert run(command(video_mme, tmp_path / "out", server, "--attempts=2")) == 2
        assert server.requests == []
    assert "videozoomer makes one attempt at a question: leave --attempts out" in capsys.readouterr().err
