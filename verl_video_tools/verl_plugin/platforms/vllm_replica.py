"""The replica of verl's vLLM servers that takes references to images, registered under verl's own name `vllm`.

The name stays `vllm` because verl compares it in places (priority argument, actor names). The class is loaded lazily:
it imports vLLM. On CPUs `cpu_replica` registers one that does the same, and more.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    from verl_video_tools.verl_plugin.vllm_front_end import FrontEndReplica

    return FrontEndReplica


RolloutReplicaRegistry.register("vllm", _load)
