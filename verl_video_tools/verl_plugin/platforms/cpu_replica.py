"""The rollout replica of the CPU platform, registered under verl's own name `vllm`.

The name stays `vllm` because verl compares it in places (priority argument, actor names). The class is loaded lazily:
it imports vLLM.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    from verl_video_tools.verl_plugin.platforms.cpu_vllm import CpuVllmReplica

    return CpuVllmReplica


RolloutReplicaRegistry.register("vllm", _load)
