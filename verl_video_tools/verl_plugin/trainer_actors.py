"""The Ray actors that a trainer waits for, by what they are called in messages.

The trainer itself runs in verl's task runner, whose death ends the driver's own call. Checkpoint engines are no actors:
weights go from the training workers to the workers of the replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def waited_for(trainer: Any) -> dict[str, list[Any]]:
    """Handles by kind, each in one kind only; to be asked once verl's trainer has started them all.

    Args:
        trainer: verl's V1 trainer. What a configuration does without (critic, reward model, teacher) it lacks, or has
            as None.
    """
    managers = trainer._rollout_server_managers()  # in the mode `separate_async` there are two
    replicas = [replica for manager in managers for replica in manager.get_replicas()]
    rewards = trainer.reward_loop_manager
    teachers = getattr(getattr(trainer, "teacher_model_manager", None), "teacher_model_managers", {})
    found = {
        "training worker": trainer.actor_rollout_wg.workers,
        "inference server": [server for replica in replicas for server in replica.servers],
        "reward worker": rewards.reward_loop_workers,
        "router": [getattr(manager, "global_load_balancer", None) for manager in managers],
        "engine worker": [worker for replica in replicas for worker in getattr(replica, "workers", None) or ()],
        "critic worker": _workers(trainer, "critic_wg"),
        "reference worker": _workers(trainer, "ref_policy_wg"),
        "reward model's server": _servers(getattr(rewards, "reward_model_manager", None)),
        "teacher's server": [server for teacher in teachers.values() for server in _servers(teacher)],
    }
    seen: set[Any] = set()
    return {kind: _new(handles, seen) for kind, handles in found.items()}


def _workers(trainer: Any, group: str) -> list[Any]:
    return list(getattr(getattr(trainer, group, None), "workers", None) or ())


def _servers(manager: Any) -> list[Any]:
    return [server for replica in getattr(manager, "rollout_replicas", None) or () for server in replica.servers]


def _new(handles: Iterable[Any], seen: set[Any]) -> list[Any]:
    """Those not seen before: one process may be training worker, reference and engine worker at once."""
    new = [handle for handle in dict.fromkeys(handles) if handle is not None and handle not in seen]
    seen.update(new)
    return new
