"""Which part of the stack a process is, by its title."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    (r".*janitor\.py", "frame cache's janitor"),
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
