"""The replica of verl's vLLM servers that takes references to images, registered under verl's own name `vllm`.

The name stays `vllm` because verl compares it in places (priority argument, actor names). The class is loaded lazily:
it imports vLLM. On CPUs it is one that does the same, and more.
"""

from __future__ import annotations

import os
from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    if os.environ.get("VERL_PLATFORM") == "cpu":
        from verl_video_tools.verl_plugin.platforms.cpu_vllm import CpuVllmReplica

        return CpuVllmReplica
    from verl_video_tools.verl_plugin.vllm_front_end import FrontEndReplica

    return FrontEndReplica


RolloutReplicaRegistry.register("vllm", _load)
