"""What this machine is: versions of packages, GPUs, driver, memory. And how much GPU memory is in use."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import threading
from dataclasses import dataclass
from types import TracebackType

import psutil

from benchmarks.first_gpu.stages import REPO
from verl_video_tools.launch.checks.installation import ENGINES, FLASH_ATTENTION
from verl_video_tools.launch.plan import GPU

MiB = 2**20
_PACKAGES = ("verl", "torch", "transformers", "ray", "TransferQueue", "peft", "av")


@dataclass(frozen=True)
class Machine:
    """`gpus` are names as the driver gives them, `memory_bytes` that of the smallest; `facts` are rows of the page."""

    gpus: tuple[str, ...]
    memory_bytes: float
    facts: dict[str, str]

    @property
    def planned_as(self) -> GPU | None:
        """What a plan is made for; None without a GPU."""
        return GPU(self.gpus[0], self.memory_bytes) if self.gpus else None


def describe() -> Machine:
    """This machine, asked with `nvidia-smi`: no CUDA context is made in this process."""
    lines = query("name", "memory.total", "driver_version")
    facts = {name: installed_version(name) for name in (*_PACKAGES, *ENGINES.values(), FLASH_ATTENTION)}
    facts |= {
        "Python": platform.python_version(),
        "kernel": platform.release(),
        "GPUs": "; ".join(f"{name}, {memory} MiB" for name, memory, _ in lines) or "none",
        "driver": lines[0][2] if lines else "none",
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "/dev/shm": f"{shutil.disk_usage('/dev/shm').total / 2**30:.1f} GiB",
        "commit": _output("git", "rev-parse", "--short", "HEAD").strip() or "unknown",
    }
    return Machine(tuple(line[0] for line in lines), min((MiB * float(line[1]) for line in lines), default=0.0), facts)


def installed_version(distribution: str) -> str:
    """A distribution's version, or that it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def query(*columns: str) -> list[list[str]]:
    """A row of `nvidia-smi --query-gpu` per GPU; none where there is no driver."""
    output = _output("nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits")
    rows = [[value.strip() for value in line.split(",")] for line in output.splitlines()]
    return [row for row in rows if len(row) == len(columns)]


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd=REPO).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def used_bytes() -> float:
    """In use on the GPU that has the most, by all processes; 0 without a GPU."""
    return MiB * max((float(row[0]) for row in query("memory.used") if row[0].isdigit()), default=0.0)


class UsedMemory:
    """While the block runs: the most bytes in use on one GPU, by all processes, looked at every two seconds."""

    def __init__(self, interval_seconds: float = 2.0) -> None:
        self.most_bytes = 0.0
        self._interval_seconds = interval_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> UsedMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            used = used_bytes()
            if not used:  # no GPU
                return
            self.most_bytes = max(self.most_bytes, used)
            if self._ended.wait(self._interval_seconds):
                return
