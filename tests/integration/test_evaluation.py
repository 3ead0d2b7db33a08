"""`vvt eval --serve` with a real vLLM: table and result, a kill between, and no process left behind.

Pictures, prompts and grading are held against training elsewhere, with a server that is none (tests/evaluation).
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.integration.conftest import REPO
from verl_video_tools.records.records import read_records

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

NUM_ITEMS = 48
RUN_TIMEOUT_SECONDS = 300
END_TIMEOUT_SECONDS = 60


@pytest.fixture(scope="module")
def command(output_dir: Path, sft_model: Path) -> list[str]:
    """First questions of the demonstration's benchmark, with the fields of its world (config groups). Without --out."""
    demo = output_dir / "demo_mixed"
    annotations = output_dir / "video_mme_short.parquet"
    pq.write_table(pq.read_table(demo / "video_mme.parquet").slice(0, NUM_ITEMS), annotations)
    fields = (
        f"prompt_file={demo}/prompts/framethinker.txt",
        "max_turn_tokens=96",
        "initial_frames_long=8",
        "call_frames_long=8",
    )
    return [
        *(sys.executable, "-m", "verl_video_tools.cli", "eval", "--method=framethinker"),
        *(f"--set={field}" for field in (*fields, "answer_grading=choice")),
        *("--benchmark=video-mme", f"--annotations={annotations}", f"--videos={demo / 'videos'}"),
        *(f"--serve={sft_model}", "--model=tiny", "--concurrency=8"),
    ]


def num_finished(out: Path) -> int:
    rollouts = out / "rollouts.jsonl"
    return rollouts.read_bytes().count(b"\n") if rollouts.exists() else 0


def is_left(process: psutil.Process) -> bool:
    """Not if it only waits to be collected, which the first process of a container may never do."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def run(command: list[str], out: Path, log_path: Path, kill_after: int | None = None) -> int:
    """Run an evaluation to its end, or kill it once so many items are finished; its exit status.

    Fails if any process that it started is still there after a while; ends that one.
    """
    started: set[psutil.Process] = set()
    with (
        log_path.open("w") as log,
        subprocess.Popen(
            [*command, f"--out={out}"], cwd=REPO, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
            while process.poll() is None and (kill_after is None or num_finished(out) < kill_after):
                assert time.monotonic() < deadline, f"not done in {RUN_TIMEOUT_SECONDS} s, see {log_path}"
                with suppress(psutil.NoSuchProcess):
                    started.update(psutil.Process(process.pid).children(recursive=True))
                time.sleep(0.2)
        finally:
            process.kill()
            deadline = time.monotonic() + END_TIMEOUT_SECONDS
            while (left := [child for child in started if is_left(child)]) and time.monotonic() < deadline:
                time.sleep(0.1)
            for child in left:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
    assert not left, f"left behind: {left}"
    assert len(started) >= 3, f"a guard, a server and an engine at least: {started}; {log_path.read_text()}"
    return process.returncode


def num_requests(out: Path) -> int:
    """Turns that the server of the last run into a folder was asked for."""
    return (out / "vllm.log").read_text(errors="replace").count("POST /v1/chat/completions")


def test_killed_and_started_again_gives_the_same_result(command: list[str], output_dir: Path) -> None:
    folder = output_dir / "evaluation"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("whole", "killed"):
        (folder / name).mkdir(parents=True)
    whole, killed = folder / "whole" / "tiny", folder / "killed" / "tiny"  # tables name the folder

    log = folder / "whole.log"
    assert run(command, whole, log) == 0, log.read_text()
    result = json.loads((whole / "results.json").read_text())
    turns = {record["uid"]: len(record["trajectory"].turns) for record in read_records(whole / "rollouts.jsonl")}
    assert (result["overall"]["items"], result["overall"]["failed"], len(turns)) == (NUM_ITEMS, 0, NUM_ITEMS)
    assert result["stop_reasons"]["answer"] > NUM_ITEMS / 2 and result["frames"]["executed_calls"]["sum"] > 0
    assert num_requests(whole) == sum(turns.values()) == result["frames"]["turns"]["sum"]
    assert (whole / "table.md").read_text() in log.read_text()
    assert "http://127.0.0.1:" in (whole / "vllm.log").read_text(errors="replace")

    log = folder / "killed.log"
    assert run(command, killed, log, kill_after=8) == -signal.SIGKILL, log.read_text()
    lines = (killed / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    done = b"".join(line for line in lines if line.endswith(b"\n"))
    finished = {json.loads(line)["uid"] for line in done.splitlines()}
    assert 8 <= len(finished) < NUM_ITEMS and not (killed / "results.json").exists()

    log = folder / "resumed.log"
    assert run(command, killed, log) == 0, log.read_text()
    assert (killed / "rollouts.jsonl").read_bytes().startswith(done)
    assert num_finished(killed) == NUM_ITEMS
    assert num_requests(killed) == sum(number for uid, number in turns.items() if uid not in finished)
    for name in ("results.json", "table.md", "table.csv"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
