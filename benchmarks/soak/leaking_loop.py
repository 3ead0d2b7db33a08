"""An agent loop that keeps memory for ever: the planted leak that a soak has to find."""

from __future__ import annotations

import os
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from benchmarks.soak import LEAK_VARIABLE
from verl_video_tools.verl_plugin.agent_loop import VideoAgentLoop

_BLOCK_BYTES = 10_000

_kept: list[bytes] = []


class LeakingLoop(VideoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        rollouts_per_step = self.config.data.train_batch_size * self.rollout_config.n
        num_bytes = float(os.environ[LEAK_VARIABLE]) * 1e6 / rollouts_per_step
        # Small blocks of many, as a leak has; zeros would take no memory.
        _kept.extend(os.urandom(_BLOCK_BYTES) for _ in range(round(num_bytes / _BLOCK_BYTES)))
        return await super().run(sampling_params, **kwargs)
