"""Registers the replica of `stale_engine` lazily, as the platforms do with theirs: its module imports vLLM."""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load() -> Any:
    from verl_video_tools.loop_check.stale_engine import StaleReplica

    return StaleReplica


RolloutReplicaRegistry.register("vllm", _load)
