"""Our agent loop with a seed for each rollout: vLLM then samples the same tokens, whatever it has sampled before and
whatever else is in its batch."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_video_tools.verl_plugin.agent_loop import VideoAgentLoop


class SeededLoop(VideoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        numbers = kwargs["global_steps"], kwargs["extra_info"]["index"], kwargs["session_id"]
        step, row, session = map(int, numbers)
        seed = (step * 10_000 + row) * 100 + session
        return await super().run({**sampling_params, "seed": seed}, **kwargs)
