"""What a process holds, seen from outside."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from benchmarks.soak.sampler import process_usage

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
