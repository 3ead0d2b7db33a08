"""What a run holds at one moment, seen from outside: of each kind of process, and of the folders that it writes."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

MEGABYTE = 1e6
Usage = dict[str, dict[str, float]]
"""Kind of process to `processes`, `memory_mb`, `shared_mb`, `handles` and `threads`, each a sum over its processes."""

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError)


def process_usage(processes: Iterable[psutil.Process]) -> Usage:
    """What these processes hold, by kind; those that end meanwhile are left out.

    Memory is the proportional set size: of pages that several processes map, each counts its part, so that sums are
    right. It is split: `memory_mb` is anonymous memory, the heaps, and `shared_mb` mapped shared memory. Pages of
    files, such as libraries, are in neither: the kernel may drop them.
    """
    usage: Usage = defaultdict(lambda: defaultdict(float))
    for process in processes:
        with suppress(*_GONE):
            kind = process_kind(process.cmdline())
            sizes = proportional_sizes(process.pid)
            values = {
                "processes": 1.0,
                "memory_mb": sizes["Pss_Anon"] / MEGABYTE,
                "shared_mb": sizes["Pss_Shmem"] / MEGABYTE,
                "handles": float(process.num_fds()),
                "threads": float(process.num_threads()),
            }
            for name, value in values.items():
                usage[kind][name] += value
    return {kind: dict(values) for kind, values in usage.items()}


def proportional_sizes(pid: int) -> dict[str, int]:
    """The `Pss` sizes of a process in bytes (Linux 5.9 and later), by the kernel's names.

    Raises:
        FileNotFoundError, ProcessLookupError: it has ended.
    """
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"^(Pss_\w+): +(\d+) kB", text, re.M)}


def folder_megabytes(folder: Path) -> float:
    """Space that a folder's files take; those that vanish meanwhile are left out, and a missing folder takes none."""
    num_bytes = 0
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    num_bytes += int(folder_megabytes(Path(entry.path)) * MEGABYTE)
                else:
                    num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
    return num_bytes / MEGABYTE


def new_files_megabytes(folder: Path, before: Iterable[str]) -> float:
    """The same of entries whose names are not among `before`, for a folder that others use as well."""
    known = set(before)
    num_bytes = 0.0
    for entry in os.scandir(folder):
        if entry.name not in known:
            with suppress(OSError):
                own = entry.stat(follow_symlinks=False).st_blocks * 512 / MEGABYTE
                num_bytes += folder_megabytes(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else own
    return num_bytes


def folder_usage(folders: Mapping[str, Path]) -> dict[str, float]:
    return {name: folder_megabytes(folder) for name, folder in folders.items()}


# -------------------------------------------------------------------------------------------------- kinds of processes

_ACTORS = {
    "IDLE": "idle Ray worker",
    "TaskRunnerV1": "trainer",
    "VideoAgentLoopWorker": "agent loop worker",
    "AgentLoopWorkerTQ": "agent loop worker",
    "RewardLoopWorker": "reward worker",
    "CpuVllmServer": "vLLM server",
    "FrontEndServer": "vLLM server",
    "WorkerDict": "FSDP worker",
    "TransferQueueController": "queue controller",
    "SimpleStorageUnit": "storage unit",
    "RetrievalActor": "retrieval",
    "GroupRouter": "router",
    "DashboardAgent": "Ray's helpers",
    "RuntimeEnvAgent": "Ray's helpers",
}
"""Ray puts the class of an actor into the title of its process."""
_TITLES = (
    (r"VLLM::EngineCore", "vLLM engine"),
    (r"VLLM::", "vLLM worker"),
    (r"\S*/raylet( |$)", "raylet"),
    (r"\S*/gcs_server( |$)", "Ray's GCS"),
    (r".*/ray/", "Ray's helpers"),
    (r"(\S*/)?bash |.* -m verl_video_tools\.launch\.supervise ", "recipe"),  # whose arguments are the driver
    (r".* -m verl\.trainer\.main_ppo", "driver"),
)
"""Regular expressions for the beginning of a title; the first that matches counts."""


def process_kind(command: Sequence[str]) -> str:
    """Kind of a process with this command line; `other` for one that nobody knows."""
    title = " ".join(command)
    if actor := re.match(r"ray::(\w+)", title):
        return _ACTORS.get(actor[1], actor[1])
    return next((kind for pattern, kind in _TITLES if re.match(pattern, title)), "other")
