"""What a process and a folder hold, seen from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.soak.kinds import process_kind
from benchmarks.soak.sampler import folder_megabytes, new_files_megabytes, process_usage

HOLDER = """
import mmap, sys, threading
private = b"1" * 50_000_000
shared = mmap.mmap(-1, 30_000_000)  # anonymous and shared
shared.write(b"1" * 30_000_000)
file = open("/dev/null")
threading.Thread(target=sys.stdin.read, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


def test_memory_shared_memory_handles_and_threads_of_processes() -> None:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            usage = process_usage([psutil.Process(process.pid)])["other"]
        finally:
            process.kill()
    assert usage["processes"] == 1
    assert usage["memory_mb"] == pytest.approx(50, abs=15)  # and the interpreter's own
    assert usage["shared_mb"] == pytest.approx(30, abs=0.1)
    assert usage["handles"] == 4  # the three standard ones, and /dev/null
    assert usage["threads"] == 2


def test_a_process_that_has_ended_counts_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        watched = psutil.Process(process.pid)
    assert process_usage([watched]) == {}


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "in" / "side").mkdir(parents=True)
    for name in ("old", "new", "in/side/file"):
        (tmp_path / name).write_bytes(b"1" * 4_096_000)
    (tmp_path / "link").symlink_to(tmp_path / "old")
    assert folder_megabytes(tmp_path) == pytest.approx(3 * 4.096, abs=0.05)
    assert new_files_megabytes(tmp_path, {"old", "link"}) == pytest.approx(2 * 4.096, abs=0.05)
    assert folder_megabytes(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("ray::VideoAgentLoopWorker.generate_sequences", "agent loop worker"),
        ("ray::IDLE", "idle Ray worker"),
        ("ray::SomethingNew", "SomethingNew"),
        ("VLLM::EngineCore", "vLLM engine"),
        ("VLLM::Worker", "vLLM worker"),
        ("/x/lib/python3.11/site-packages/ray/core/src/ray/raylet/raylet --raylet_socket_name=/t/raylet", "raylet"),
        ("/x/lib/python3.11/site-packages/ray/core/src/ray/gcs/gcs_server --log_dir=/t", "Ray's GCS"),
        ("/x/bin/python -u /x/site-packages/ray/_private/log_monitor.py --session-dir=/t", "Ray's helpers"),
        ("/x/bin/python -m verl.trainer.main_ppo data.train_files=/t/rows.parquet", "driver"),
        (
            "/x/bin/python -m verl_video_tools.verl_plugin.supervise -- /x/bin/python -m verl.trainer.main_ppo a=b",
            "recipe",
        ),
        ("bash /x/recipes/mixed_grpo.sh", "recipe"),
        ("/x/bin/python -I /x/verl_video_tools/video/janitor.py /dev/shm/vvt-frames-0-soak", "frame cache's janitor"),
        ("/usr/bin/sleep 5", "other"),
    ],
)
def test_kinds_of_processes(title: str, kind: str) -> None:
    assert process_kind(title.split(" ")) == kind
