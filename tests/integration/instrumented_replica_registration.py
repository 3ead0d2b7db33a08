"""Registers the instrumented replica lazily, as the platform does with its own: the class imports vLLM."""

from verl.workers.rollout.replica import RolloutReplicaRegistry


def _load():
    from tests.integration.instrumented_replica import InstrumentedReplica

    return InstrumentedReplica


RolloutReplicaRegistry.register("vllm", _load)
