"""verl's agent loop workers, able to score a rollout of several multimodal sequences.

verl 0.9.1 pads the sequences of one rollout into one batch for the reward worker, and position ids of shape (4, L)
along the wrong axis: it fails ("The size of tensor a must match the size of tensor b") where two lengths differ.
Selected by the trainer `video_tools` through verl's option `rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

from typing import Any

import ray
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

# verl exports the Ray actor; a class can only inherit from the one inside. That one has no name to be found by, so Ray
# sends it to its workers by value; the class below must not have one either, or the two would come apart there.
_Worker: Any = AgentLoopWorkerTQ.__ray_actor_class__


@ray.remote
class VideoAgentLoopWorker(_Worker):
    async def _compute_score(self, outputs: list[AgentLoopOutput], kwargs: dict[str, Any]) -> None:
        """The record travels with the last sequence, and verl hands the reward on to the others."""
        await super()._compute_score(outputs[-1:], kwargs=kwargs)


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
