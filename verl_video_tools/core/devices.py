"""Whether this machine has GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess


def detect_device() -> str:
    """`gpu` or `cpu`: the environment variable DEVICE where it says so, else whether nvidia-smi lists a GPU."""
    wanted = os.environ.get("DEVICE", "")
    return wanted if wanted in ("cpu", "gpu") else ("gpu" if list_gpus() else "cpu")


def list_gpus() -> list[str]:
    """Names of the GPUs that nvidia-smi lists; empty where it is missing or fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]
