"""verl's agent loop workers, able to score a rollout of several multimodal sequences, and without its pixels.

verl 0.9.1 pads the sequences of one rollout into one batch for the reward worker, and position ids of shape (4, L)
along the wrong axis: it fails ("The size of tensor a must match the size of tensor b") where two lengths differ. For
that batch it also runs the processor over all pictures, once more than for training, on the event loop that all
rollouts of the worker share, and keeps what comes out while a judge thinks. Rewards read the record, and need none.
Selected by the trainer `video_tools` through verl's option `rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import ray
import torch
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

# verl exports the Ray actor; a class can only inherit from the one inside. That one has no name to be found by, so Ray
# sends it to its workers by value; the class below must not have one either, or the two would come apart there.
_Worker: Any = AgentLoopWorkerTQ.__ray_actor_class__


is_scoring: ContextVar[bool] = ContextVar("is_scoring", default=False)
"""Of a rollout's task. The methods below import it, since it cannot be sent by value."""


@ray.remote
class VideoAgentLoopWorker(_Worker):
    async def _compute_score(self, outputs: list[AgentLoopOutput], kwargs: dict[str, Any]) -> None:
        """The record travels with the last sequence, and verl hands the reward on to the others."""
        from verl_video_tools.agent_loop.worker import is_scoring

        token = is_scoring.set(True)
        try:
            await super()._compute_score(outputs[-1:], kwargs=kwargs)
        finally:
            is_scoring.reset(token)

    def _compute_multi_modal_inputs(self, output: AgentLoopOutput, input_ids: torch.Tensor) -> dict[str, Any]:
        from verl_video_tools.agent_loop.worker import is_scoring

        return {} if is_scoring.get() else super()._compute_multi_modal_inputs(output, input_ids)

    def _compute_position_ids(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Of shape (1, 4, L) for training, (1, L) for the reward worker, which reads none."""
        from verl_video_tools.agent_loop.worker import is_scoring

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
