"""`vvt eval` with options of sampling: what is sent, and what happens where an endpoint does not take it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import scripted
from tests.evaluation.eval_command import SCRIPTS, command, result_of
from tests.judge_server import JudgeServer, Reply
from verl_video_tools.cli.main import run
from verl_video_tools.data.formats import BenchmarkFiles

pytest.importorskip("openai", reason="the extra `judge` is not installed")
pytestmark = pytest.mark.usefixtures("short_backoff")

OPTIONS = {"temperature": 0.6, "top_p": 0.9}
LINE = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]


def test_options_of_sampling_are_sent_and_told(video_mme: BenchmarkFiles, tmp_path: Path) -> None:
    with JudgeServer(reply=scripted(SCRIPTS)) as server:
        assert run(command(video_mme, tmp_path / "out", server, *LINE)) == 0
        assert all(OPTIONS.items() <= request.items() for request in server.requests)
        server.requests.clear()
        assert run(command(video_mme, tmp_path / "greedy", server)) == 0
        assert not any("top_p" in request for request in server.requests)
    assert result_of(tmp_path / "out")["protocol"]["sampling"] == {**OPTIONS, "seed": None}


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 422])
def test_an_endpoint_that_does_not_take_an_option_ends_the_run(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    refusal = {"error": {"message": "Unrecognized request argument supplied: top_p", "type": "invalid_request_error"}}

    def plain_openai(request: dict[str, Any]) -> Reply:
        return Reply(json.dumps(refusal).encode(), status) if "top_p" in request else scripted(SCRIPTS)(request)

    with JudgeServer(reply=plain_openai) as server:
        assert run(command(video_mme, tmp_path / "out", server, "--top-p=0.9", "--concurrency=1")) == 1
        assert len(server.requests) == 1
        told = capsys.readouterr().err
        assert "the endpoint does not take top_p=0.9; leave it out, or ask a server that takes it" in told
        assert "Unrecognized request argument supplied: top_p" in told
        assert run(command(video_mme, tmp_path / "out", server)) == 0  # nothing was recorded under the other protocol


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--top-p=0", "PolicyConfig.top_p must be above 0 and at most 1, or None, got 0.0"),
    ],
)
def test_values_out_of_range(
    video_mme: BenchmarkFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, message: str
) -> None:
    with JudgeServer() as server:
        assert run(command(video_mme, tmp_path / "out", server, option)) == 2
        assert server.requests == []
    assert message in capsys.readouterr().err
