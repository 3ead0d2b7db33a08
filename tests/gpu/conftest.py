"""Checks for a machine with a GPU: `make test-gpu`. VVT_TEST_DEVICE=cpu runs their bodies without one, on the CPU
platform; that shows that the checks work, and nothing about a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[2]
CPU_PLATFORM = {
    "VERL_PLATFORM": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@pytest.fixture(scope="session")
def device() -> str:
    """`cuda`, or what VVT_TEST_DEVICE says."""
    return os.environ.get("VVT_TEST_DEVICE", "cuda")


@pytest.fixture(scope="session")
def run_python(device: str) -> Any:
    """Function: the standard output of a Python process of its own, which frees the GPU when it ends."""

    def run(*arguments: str, timeout_seconds: float = 600) -> str:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": str(REPO), **(CPU_PLATFORM if device == "cpu" else {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=timeout_seconds)
        finally:  # also vLLM's engine, a process of its own
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, errors[-6000:]
        return output

    return run
