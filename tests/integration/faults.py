"""Faults that a row's `agent_name` plants in real rollouts of FrameThinker, to show what notices each of them.

framethinker_flagging   the first rollout of every group is flagged: it must not train or count
framethinker_mask       the loss mask covers observations too
framethinker_flat       the actor gets positions in reading order instead of the model's own
framethinker_aborted    the engine is told to abort the requests of every rollout but the first
longvt_answering        every rollout has an answer that only a judge can grade; the tiny policy seldom gives one
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import ray
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from tests.integration.instrumented_replica import ABORT
from verl_video_tools.rollout.tokens import TokenStream
from verl_video_tools.verl_plugin.agent_loop import VideoAgentLoop
from verl_video_tools.verl_plugin.settings import pack_record, unpack_record

masks_observations: ContextVar[bool] = ContextVar("masks_observations", default=False)
flattens_positions: ContextVar[bool] = ContextVar("flattens_positions", default=False)
_append_context = TokenStream.append_context


def _append_context_with_fault(self: TokenStream, token_ids: Sequence[int]) -> None:
    _append_context(self, token_ids)
    if masks_observations.get() and token_ids:
        self.response_mask[-len(token_ids) :] = [1] * len(token_ids)


TokenStream.append_context = _append_context_with_fault


class FlaggingLoop(VideoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        output = await super().run(sampling_params, **kwargs)
        if kwargs["session_id"] == 0:
            trajectory = unpack_record(output.extra_fields)
            trajectory.flags.append("planted")
            output.extra_fields.update(pack_record(trajectory))
        return output


class AnsweringLoop(VideoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        output = await super().run(sampling_params, **kwargs)
        trajectory = unpack_record(output.extra_fields)
        trajectory.answer = "a thing with a colour"
        output.extra_fields.update(pack_record(trajectory))
        return output


class MaskFaultLoop(VideoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        masks_observations.set(True)  # in the task of this rollout only
        return await super().run(sampling_params, **kwargs)


class AbortedLoop(VideoAgentLoop):
    """`instrumented_replica` has the other half."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        if kwargs["session_id"] != 0:
            sampling_params = {**sampling_params, "extra_args": {ABORT: True}}
        return await super().run(sampling_params, **kwargs)


_Worker: Any = AgentLoopWorkerTQ.__ray_actor_class__


@ray.remote
class _FaultyWorker(_Worker):
    """Sent to its process by value (see `verl_plugin.agent_loop_worker`), so what cannot be sent is imported there."""

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:
        from tests.integration.faults import flattens_positions

        flattens_positions.set(kwargs["extra_info"]["fault"] == "flat")
        await super()._agent_loop_postprocess(output, validate, **kwargs)

    def _compute_position_ids(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        from tests.integration.faults import flattens_positions

        positions = super()._compute_position_ids(*args, **kwargs)
        flat = torch.arange(positions.shape[-1]).expand_as(positions)
        return flat.contiguous() if flattens_positions.get() else positions


class FaultyManager(AgentLoopManagerTQ):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = _FaultyWorker
