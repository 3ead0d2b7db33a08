"""A server as a child: its options, its health, and that neither it nor its workers outlive us. A small program plays
vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import is_gone, wait_until
from verl_video_tools.core.errors import EndpointError, SetupError
from verl_video_tools.core.types import RolloutLimits
from verl_video_tools.evaluation import serve
from verl_video_tools.evaluation.serve import served_model

REPO = Path(__file__).parents[2]
COMMAND = (sys.executable, str(Path(__file__).parent / "fake_vllm.py"))
BUDGET = RolloutLimits(prompt_tokens=3000, response_tokens=2000, images=16)


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def await_end(pid: int) -> None:
    """Fails if the process is still there after a while."""
    wait_until(lambda: is_gone(pid), f"the end of process {pid}", 20)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "COMMAND", COMMAND)
    monkeypatch.setattr(serve, "STOP_SECONDS", 0.3)
    monkeypatch.setattr(serve, "_POLL_SECONDS", 0.02)


async def test_a_server_lives_as_long_as_the_context(tmp_path: Path) -> None:
    model, log = tmp_path / "model", tmp_path / "out" / "vllm.log"
    model.mkdir()
    (model / "config.json").write_text('{"text_config": {"max_position_embeddings": 4096}}')
    without_flags = {"dtype": "half", "enforce-eager": False, "skip-mm-profiling": False}
    async with served_model(str(model), log, BUDGET, without_flags) as base_url:
        with urllib.request.urlopen(f"{base_url.removesuffix('/v1')}/health", timeout=10) as reply:
            assert reply.status == 200
        started, worker = lines(log)
        assert psutil.pid_exists(worker["worker"])
    await_end(worker["worker"])
    arguments = started["arguments"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert options["--model"] == options["--served-model-name"] == str(model)
    assert options["--host"] == "127.0.0.1"
    assert options["--generation-config"] == "vllm"
    assert json.loads(options["--limit-mm-per-prompt"]) == {"image": 16, "video": 0}
    assert options["--max-model-len"] == "4096"  # the model reads no more
    assert options["--dtype"] == "half" and "--enforce-eager" not in options
    assert started["omp"] is not None


async def test_a_server_for_videos_can_take_one(tmp_path: Path) -> None:
    """vLLM refused them: none was allowed, and then its cache held what 14 frames take."""
    async with served_model("some/name", tmp_path / "log", BUDGET, takes_video=True):
        arguments = lines(tmp_path / "log")[0]["arguments"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    assert json.loads(options["--limit-mm-per-prompt"]) == {"image": 0, "video": 1}
    assert options["--max-num-batched-tokens"] == options["--max-model-len"] == "5000"


async def test_tokens_of_the_recipe_where_the_model_says_nothing(tmp_path: Path) -> None:
    async with served_model("some/name", tmp_path / "log", BUDGET, name="short"):
        arguments = lines(tmp_path / "log")[0]["arguments"]
    assert arguments[arguments.index("--max-model-len") + 1] == "5000"
    assert arguments[arguments.index("--served-model-name") + 1] == "short"


async def test_a_server_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    async with served_model("m", tmp_path / "log", BUDGET, {"stubborn": True}):
        worker = lines(tmp_path / "log")[1]["worker"]
    await_end(worker)


async def test_an_error_ends_the_server_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ours"):
        async with served_model("m", tmp_path / "log", BUDGET):
            raise ValueError("ours")
    await_end(lines(tmp_path / "log")[1]["worker"])


@pytest.mark.slow
async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"status 1; .*log has 'ValueError: no room' and ends with: .*: see above"):
        async with served_model("m", tmp_path / "log", BUDGET, {"fail": True}):
            raise AssertionError("it never ran")
    with pytest.raises(SetupError, match=r"not healthy after 0.5 s"):
        async with served_model("m", tmp_path / "log", BUDGET, {"never": True}, start_seconds=0.5):
            raise AssertionError("it never ran")


@pytest.mark.slow
async def test_a_server_that_dies_says_so_and_takes_its_workers_along(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(EndpointError, match=r"^no reply; the server ended with status -9; .*log ends with: "):
        async with served_model("m", log, BUDGET):
            started, worker = lines(log)
            os.kill(started["pid"], signal.SIGKILL)
            raise EndpointError("no reply")
    await_end(worker["worker"])
    with pytest.raises(EndpointError, match=r"^refused$"):
        async with served_model("m", log, BUDGET):
            raise EndpointError("refused")


def test_a_server_ends_when_we_are_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from verl_video_tools.evaluation import serve\n"
        "from verl_video_tools.core.types import RolloutLimits\n"
        f"serve.COMMAND, serve.STOP_SECONDS = {COMMAND!r}, 0.3\n"
        "async def main():\n"
        f"    async with serve.served_model('m', Path({str(log)!r}), RolloutLimits(1, 1, 1)):\n"
        "        print('up', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=REPO) as parent:
        try:
            assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
        finally:
            parent.kill()
    started, worker = lines(log)
    for pid in (started["parent"], started["pid"], worker["worker"]):
        await_end(pid)
