"""verl's agent loop workers, for rollouts of many images.

They can score a rollout of several multimodal sequences. verl 0.9.1 pads these into one batch for the reward worker,
and position ids of shape (4, L) along the wrong axis: it fails ("The size of tensor a must match the size of tensor b")
where two lengths differ.

They score without pixels. For that batch verl runs the processor over all images, once more than for training, on the
event loop that all rollouts of the worker share, and keeps what comes out while a judge thinks. Rewards read the
record, and need none.

They keep pixels as small as the model will read them. verl keeps the processor's float32 until the step's update is
done, though FSDP casts it to bfloat16 before anything else.

Selected by the trainer `video_tools` through verl's option `rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import ray
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.torch_dtypes import PrecisionType

# verl exports the Ray actor; a class can only inherit from the one inside. That one has no name to be found by, so Ray
# sends it to its workers by value; the class below must not have one either, or the two would come apart there.
_Worker: Any = AgentLoopWorkerTQ.__ray_actor_class__


is_scoring: ContextVar[bool] = ContextVar("is_scoring", default=False)
"""Of a rollout's task. The methods below import it, since it cannot be sent by value."""


def forward_dtype(config: DictConfig) -> torch.dtype:
    """To what actor and reference cast their inputs before anything else, so that casting them earlier changes no bit.

    FSDP's mixed precision does so (`MixedPrecisionPolicy.cast_forward_inputs`, which verl sets). Where the two differ,
    or another engine trains, it is float32, the processor's own.

    Args:
        config: `actor_rollout_ref`.
    """
    dtypes = set()
    for role in (config.actor, config.ref):
        if role.strategy not in ("fsdp", "fsdp2"):
            return torch.float32
        precision = OmegaConf.select(role, "fsdp_config.mixed_precision.param_dtype", default="bf16")  # verl's default
        dtypes.add(PrecisionType.to_dtype(precision))
    return dtypes.pop() if len(dtypes) == 1 else torch.float32


@ray.remote
class VideoAgentLoopWorker(_Worker):
    async def _compute_score(self, outputs: list[AgentLoopOutput], kwargs: dict[str, Any]) -> None:
        """The record travels with the last sequence, and verl hands the reward on to the others."""
        from verl_video_tools.verl_plugin.agent_loop_worker import is_scoring

        token = is_scoring.set(True)
        try:
            await super()._compute_score(outputs[-1:], kwargs=kwargs)
        finally:
            is_scoring.reset(token)

    def _compute_multi_modal_inputs(self, output: AgentLoopOutput, input_ids: torch.Tensor) -> dict[str, Any]:
        """Pixels in the precision in which the model will read them."""
        from verl_video_tools.verl_plugin.agent_loop_worker import forward_dtype, is_scoring

        if is_scoring.get():
            return {}
        inputs: dict[str, Any] = super()._compute_multi_modal_inputs(output, input_ids)
        if "pixel_values" in inputs:
            inputs["pixel_values"] = inputs["pixel_values"].to(forward_dtype(self.config.actor_rollout_ref))
        return inputs

    def _compute_position_ids(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Of shape (1, 4, L) for training, (1, L) for the reward worker, which reads none."""
        from verl_video_tools.verl_plugin.agent_loop_worker import is_scoring

        if is_scoring.get():
            return torch.arange(input_ids.shape[-1]).unsqueeze(0)
        return super()._compute_position_ids(input_ids, *args, **kwargs)


class VideoAgentLoopManager(AgentLoopManagerTQ):
    agent_loop_workers: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = VideoAgentLoopWorker

    def generate_sequences(self, prompts: TensorDict) -> None:
        """verl hands out a batch from the first worker on, every time: the few questions that dynamic sampling asks
        again would all go to the same workers, and to their node. The next batch begins where this one has ended."""
        super().generate_sequences(prompts)
        num_chunks = len(prompts.chunk(len(self.agent_loop_workers)))
        self.agent_loop_workers = [*self.agent_loop_workers[num_chunks:], *self.agent_loop_workers[:num_chunks]]
