"""`vvt eval` with several endpoints of one model: who is asked, and what faults of one of them cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import chat_reply, scripted, texts_of
from tests.evaluation.eval_command import BOWLS, SCRIPTS, command, result_of
from tests.judge_server import JudgeServer, Reply
from verl_video_tools.cli.main import run
from verl_video_tools.data.formats import BenchmarkFiles
from verl_video_tools.records.records import read_records

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_backoff")]

GOOD = scripted(SCRIPTS)
HTML = b"<html><body>Bad gateway</body></html>"


def and_(server: JudgeServer) -> str:
    return f"--base-url={server.base_url}"


def asked(request: dict[str, Any]) -> str:
    """The question of a request."""
    return next(question for question in SCRIPTS if question in texts_of(request["messages"][1]))


def test_a_rollout_stays_with_one_endpoint_and_both_are_used(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    # Slow enough that the second and third rollout begin while the first is under way.
    with JudgeServer(reply=GOOD, latency_seconds=0.3) as one, JudgeServer(reply=GOOD, latency_seconds=0.3) as two:
        assert run(command(video_mme, tmp_path / "out", one, and_(two))) == 0
        shares = [{asked(request) for request in server.requests} for server in (one, two)]
    assert all(shares) and not shares[0] & shares[1]
    assert shares[0] | shares[1] == set(SCRIPTS)
    assert len(one.requests) + len(two.requests) == 6  # 1, 2 and 3 turns


FAULTS: dict[str, Callable[[dict[str, Any]], Reply]] = {
    "429": lambda request: Reply(b"slow down", 429, headers=(("Retry-After", "60"),)),
    "500": lambda request: Reply(b"{}", 500),
    "502": lambda request: Reply(HTML, 502, "text/html"),
    "HTML": lambda request: Reply(HTML, content_type="text/html"),
    "HTML that claims to be JSON": lambda request: Reply(HTML),
    "another JSON": lambda request: Reply(b'{"status": "starting"}'),
    "nothing": lambda request: Reply(b""),
    "a cut connection": lambda request: Reply(None),
}


def test_a_faulty_endpoint_costs_no_item(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer(reply=GOOD) as good:
        assert run(command(video_mme, tmp_path / "alone", good)) == 0
        alone = (tmp_path / "alone" / "results.json").read_bytes()
        for number, (fault, reply) in enumerate(FAULTS.items()):
            out = tmp_path / str(number)
            with JudgeServer(reply=reply) as bad:
                servers = (bad, good) if number % 2 else (good, bad)
                assert run(command(video_mme, out, servers[0], and_(servers[1]))) == 0
                assert bad.requests, fault
            assert result_of(out)["failures"] == [], fault
            assert (out / "results.json").read_bytes() == alone, fault


def test_an_endpoint_that_never_answers_costs_a_deadline_and_no_item(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    ended = threading.Event()

    def never(request: dict[str, Any]) -> Reply:
        ended.wait(30)
        return GOOD(request)

    with JudgeServer(reply=never) as hanging, JudgeServer(reply=GOOD) as good:
        try:
            assert run(command(video_mme, tmp_path / "out", hanging, and_(good), "--deadline-seconds=1")) == 0
        finally:
            ended.set()
        assert hanging.requests
    assert result_of(tmp_path / "out")["overall"]["failed"] == 0


def test_an_endpoint_that_dies_half_way_through_a_rollout(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer() as dying, JudgeServer(reply=GOOD) as good:

        def once(request: dict[str, Any]) -> Reply:
            if len(request["messages"]) > 2:
                threading.Thread(target=dying.kill).start()
                time.sleep(0.1)
            return GOOD(request)

        dying.reply = once
        assert run(command(video_mme, tmp_path / "out", dying, and_(good), "--concurrency=1")) == 0
        continued = [request for request in good.requests if len(request["messages"]) > 2]
        assert continued and asked(continued[0]) == asked(dying.requests[-1])
    assert result_of(tmp_path / "out")["overall"]["failed"] == 0


def test_an_address_where_nothing_listens_is_passed_over(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer() as gone:
        pass
    with JudgeServer(reply=GOOD) as good:
        assert run(command(video_mme, tmp_path / "out", gone, and_(good))) == 0
    assert result_of(tmp_path / "out")["overall"]["failed"] == 0


def test_where_all_are_lost_the_run_ends_and_goes_on_with_others(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=GOOD) as whole:
        assert run(command(video_mme, tmp_path / "whole", whole)) == 0
    with JudgeServer() as one, JudgeServer() as two:

        def dying(request: dict[str, Any]) -> Reply:
            if BOWLS not in texts_of(request["messages"][1]):
                for server in (one, two):
                    threading.Thread(target=server.kill).start()
                time.sleep(0.2)
            return GOOD(request)

        one.reply = two.reply = dying
        options = ("--concurrency=1", "--deadline-seconds=1")
        assert run(command(video_mme, tmp_path / "out", one, and_(two), *options)) == 1
        told = capsys.readouterr().err
        assert "EndpointError: no usable reply from http" in told and "1 of 3 are recorded" in told
    assert [record["uid"] for record in read_records(tmp_path / "out" / "rollouts.jsonl")] == ["0"]
    with JudgeServer(reply=GOOD) as three, JudgeServer(reply=GOOD) as four:
        assert run(command(video_mme, tmp_path / "out", three, and_(four))) == 0
    results = [(tmp_path / name / "results.json").read_bytes() for name in ("whole", "out")]
    assert results[0] == results[1]


@pytest.mark.parametrize("seed", [(), ("--temperature=0.7", "--seed=3")])
def test_a_killed_run_with_repeats_and_two_endpoints_resumes_to_the_same_bytes(
    video_mme: BenchmarkFiles, tmp_path: Path, seed: tuple[str, ...]
) -> None:
    """Both endpoints die after some items, and two others go on, the order of the addresses turned round."""
    options = ("--repeats=3", *seed)
    with JudgeServer(reply=GOOD) as whole:
        assert run(command(video_mme, tmp_path / "whole", whole, *options)) == 0
    with JudgeServer() as one, JudgeServer() as two:
        answered: list[str] = []

        def dying(request: dict[str, Any]) -> Reply:
            answered.append(asked(request))
            if len(answered) == 9:
                for server in (one, two):
                    threading.Thread(target=server.kill).start()
            return GOOD(request)

        one.reply = two.reply = dying
        assert run(command(video_mme, tmp_path / "out", one, and_(two), *options, "--deadline-seconds=1")) == 1
    recorded = len(list(read_records(tmp_path / "out" / "rollouts.jsonl")))
    assert 0 < recorded < 9
    with JudgeServer(reply=GOOD) as three, JudgeServer(reply=GOOD) as four:
        assert run(command(video_mme, tmp_path / "out", four, and_(three), *options)) == 0
    results = [(tmp_path / name / "results.json").read_bytes() for name in ("whole", "out")]
    assert results[0] == results[1]


def test_the_same_address_twice_is_bad_usage(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(reply=lambda request: chat_reply("?")) as server:
        assert run(command(video_mme, tmp_path / "out", server, and_(server))) == 2
    assert "PolicyConfig.base_url must be addresses that differ" in capsys.readouterr().err
