"""FrameThinker's loop, except that the first rollout of every group is flagged: it must not train or count."""

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_video_tools.agent_loop.loop import VideoAgentLoop
from verl_video_tools.agent_loop.settings import pack_record, unpack_record


class FlaggingLoop(VideoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        output = await super().run(sampling_params, **kwargs)
        if kwargs["session_id"] == 0:
            trajectory = unpack_record(output.extra_fields)
            trajectory.flags.append("planted")
            output.extra_fields.update(pack_record(trajectory))
        return output
