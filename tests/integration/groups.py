"""A group of rollouts through verl's agent loop worker or ours, into a TransferQueue, with a scripted policy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import transfer_queue as tq
from hydra import compose, initialize_config_module
from tensordict import NonTensorData, NonTensorStack, TensorDict

from tests.verl_plugin.harness import ScriptedServer, make_row, model_dir, video
from verl_video_tools.config import config_path
from verl_video_tools.synthetic import Family
from verl_video_tools.verl_plugin.group_router import RequestId
from verl_video_tools.verl_plugin.reward_manager import VideoToolsRewardManager

GROUP = 4


def run_config(family: Family, *options: str, method: str = "framethinker") -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={model_dir(family)}",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.n={GROUP}",
                "actor_rollout_ref.rollout.prompt_length=4096",
                "actor_rollout_ref.rollout.response_length=4096",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={config_path('agent-loops')}",
                f"actor_rollout_ref.rollout.agent.default_agent_loop={method}",
                "actor_rollout_ref.actor.strategy=fsdp2",
                "actor_rollout_ref.ref.strategy=fsdp2",
                *options,
            ],
        )


async def one_group(
    worker_class: Any, config: Any, uid: str, scripts: Sequence[Sequence[str]], *, validate: bool = False
) -> None:
    """All rollouts of one question, into the queue.

    Args:
        scripts: the turns of each rollout.
    """

    class Client:
        async def generate(self, request_id: str, **request: Any) -> Any:
            rollout = RequestId.parse(request_id)
            assert rollout is not None
            server = servers.setdefault(request_id, ScriptedServer(scripts[rollout.session_id]))
            return await server.generate(request_id=request_id, **request)

    servers: dict[str, ScriptedServer] = {}
    scorer = SimpleNamespace(
        compute_score=SimpleNamespace(remote=VideoToolsRewardManager(config, tokenizer=None).run_single)
    )
    worker = worker_class.__ray_actor_class__(config, Client(), reward_loop_worker_handles=[scorer])
    row = make_row(video()) | {"uid": uid, "agent_name": config.actor_rollout_ref.rollout.agent.default_agent_loop}
    batch = TensorDict({}, batch_size=[1])
    for name in ("session_id", "global_steps"):
        row.pop(name)
    for name, value in row.items():
        batch[name] = NonTensorStack(value)
    batch["global_steps"] = torch.tensor([1])
    batch["index"] = torch.tensor([7])
    if validate:
        batch["validate"] = NonTensorData(True)
    partition_id = "val" if validate else "train"
    tq.kv_batch_put(keys=[uid], partition_id=partition_id, tags=[{"is_prompt": True, "status": "pending"}])
    await worker.generate_sequences(batch)
    await asyncio.gather(*worker.background_tasks)


def keys_of_group(uid: str, partition_id: str = "train") -> list[str]:
    """Of the rows of a group that has finished."""
    listed = tq.kv_list()[partition_id]
    assert listed[uid]["status"] == "finished"
    keys = sorted(key for key in listed if key.startswith(f"{uid}_"))
    assert len(keys) == GROUP
    return keys


def clear_queue() -> None:
    for partition_id, keys in tq.kv_list().items():
        if keys:
            tq.kv_clear(keys=list(keys), partition_id=partition_id)
