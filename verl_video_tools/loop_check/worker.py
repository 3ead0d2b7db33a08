"""Agent loop workers with the taps, for verl's option `actor_rollout_ref.rollout.agent.agent_loop_manager_class`.

    verl_video_tools.loop_check.worker.StockManager    loops in verl's own worker, such as `tool_agent`
    verl_video_tools.loop_check.worker.VideoManager    our loops in our worker
    tapped(MyManager)                                  loops that have a manager of their own

The faults of loops are planted without touching one: between loop and server, and in what the loop hands over.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
from verl.utils.tokenizer import get_processor_token_id

from verl_video_tools.core.errors import SetupError, UsageError
from verl_video_tools.loop_check.client import TappedClient, TappedRollout, running
from verl_video_tools.loop_check.faults import FAULTS, Fault, HandedOver, Tokens
from verl_video_tools.loop_check.images import row_images
from verl_video_tools.loop_check.records import FOLDER_VARIABLE, STALE_VARIABLE, STALE_WEIGHTS, Row, TapFolder
from verl_video_tools.verl_plugin.agent_loop_worker import IMAGE_PARTS, VideoAgentLoopManager
from verl_video_tools.verl_plugin.settings import has_record, pack_record, unpack_record

LOST_FLAG = "planted"
"""What the fault `lost_rollout` flags a record of ours with; other loops have nothing to flag."""


def tap_folder() -> TapFolder:
    """Raises SetupError where the environment names no folder."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise SetupError(f"a conformance run writes what it taps into the folder that {FOLDER_VARIABLE} names; set it")
    return TapFolder(Path(folder))


def planted_fault(extra_info: Any, step: int) -> str | None:
    """Name of the fault of a row in a step.

    Raises:
        UsageError: the row names one that there is not.
    """
    stale_from = os.environ.get(STALE_VARIABLE)
    if stale_from and step >= int(stale_from):
        return STALE_WEIGHTS
    name = (extra_info or {}).get("fault")
    if name and name not in FAULTS:
        raise UsageError(f"extra_info.fault={name!r}: there is no such fault; known are {', '.join(FAULTS)}")
    return name or None


class LoopTap:
    """Stands before an agent loop worker of verl in the list of base classes."""

    llm_client: Any
    processor: Any
    tokenizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.processor is None:
            raise SetupError("a conformance run needs a model with an image processor, and verl could load none")
        self._tap_folder = tap_folder()
        self._tap_tokens = Tokens(get_processor_token_id(self.processor, "image"), self.tokenizer)
        # verl's worker hands its client to each loop that it makes.
        self.llm_client = TappedClient(self.llm_client, self._tap_folder, self._tap_tokens)

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, **kwargs: Any
    ) -> Any:
        """Each rollout is an asyncio task of its own, and has its own `running`."""
        if trajectory["validate"]:
            result: Any = await super()._run_agent_loop(  # type: ignore[misc]
                sampling_params, trajectory, agent_name=agent_name, **kwargs
            )
            return result
        step = int(trajectory["step"])
        fault = planted_fault(kwargs.get("extra_info"), step)
        plants = FAULTS.get(fault or "", Fault())
        rollout = TappedRollout(str(kwargs["uid"]), int(kwargs["session_id"]), step, agent_name, fault, plants)
        running.set(rollout)
        try:
            return await super()._run_agent_loop(  # type: ignore[misc]
                sampling_params, trajectory, agent_name=agent_name, **kwargs
            )
        except Exception as error:
            if not rollout.is_told:
                self._tap_folder.write(Row(**_fields(rollout, 0), error=_text(error)))
            raise

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **kwargs: Any
    ) -> None:
        rollout = running.get()
        if rollout is None or validate:
            await super()._agent_loop_postprocess(output, validate, **kwargs)  # type: ignore[misc]
            return
        loops_own = output if isinstance(output, list) else [output]
        handed_over = [_handed_over(each, rollout) for each in loops_own]
        outputs = [each for each, _ in handed_over]
        # verl goes on to change these: it takes the flags, masks and images of now.
        lines = [self._line(i, each, rollout, handed) for i, (each, handed) in enumerate(handed_over)]
        try:
            await super()._agent_loop_postprocess(  # type: ignore[misc]
                outputs if isinstance(output, list) else outputs[0], validate, **kwargs
            )
        except Exception as error:
            for line in lines:
                self._tap_folder.write(Row(**line, error=_text(error)))
            rollout.is_told = True
            raise
        rollout.is_told = True
        # verl asks for positions for its reward worker first, then once for each row.
        for line, (grids_N3, position_ids, is_changed) in zip(lines, rollout.placed[-len(lines) :], strict=True):
            line |= {
                "grids_N3": grids_N3,
                "position_ids_CL": position_ids.reshape(-1, position_ids.shape[-1]).tolist(),
                "planted": line["planted"] or is_changed,
            }
            self._tap_folder.write(Row(**line))

    def _compute_position_ids(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, multi_modal_inputs: Any, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        own: torch.Tensor = super()._compute_position_ids(  # type: ignore[misc]
            input_ids, attention_mask, multi_modal_inputs, *args, **kwargs
        )
        rollout = running.get()
        if rollout is None:
            return own
        placed = rollout.plants.place(own)
        grids_N3 = (multi_modal_inputs or {}).get("image_grid_thw")
        grids = [] if grids_N3 is None else torch.as_tensor(grids_N3).tolist()
        rollout.placed.append((grids, placed, not torch.equal(own, placed)))
        return placed

    def _line(
        self, sequence: int, output: AgentLoopOutput, rollout: TappedRollout, handed: tuple[HandedOver, bool]
    ) -> dict[str, Any]:
        """Fields of a `Row`, but for what only verl's part of the worker computes."""
        images = row_images(output.multi_modal_data, IMAGE_PARTS)
        for name, pixels_HWC in images:
            self._tap_folder.keep_image(name, pixels_HWC)
        return _fields(rollout, sequence) | {
            "planted": rollout.is_planted or handed[1],
            "lost": handed[0].lost,
            "prompt_ids": list(output.prompt_ids),
            "response_ids": list(output.response_ids),
            "response_mask": list(output.response_mask),
            "log_probs": None if output.response_logprobs is None else list(output.response_logprobs),
            "images": [name for name, _ in images],
            "flags": _flags(output),
        }


def _fields(rollout: TappedRollout, sequence: int) -> dict[str, Any]:
    """Fields of a `Row`, of a rollout that has none."""
    return {
        "uid": rollout.uid,
        "session_id": rollout.session_id,
        "sequence": sequence,
        "step": rollout.step,
        "loop": rollout.loop,
        "fault": rollout.fault,
        "planted": rollout.is_planted,
        "lost": False,
        "prompt_ids": [],
        "response_ids": [],
        "response_mask": [],
        "log_probs": None,
        "images": [],
        "grids_N3": [],
        "position_ids_CL": [],
        "flags": [],
    }


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _handed_over(output: AgentLoopOutput, rollout: TappedRollout) -> tuple[AgentLoopOutput, tuple[HandedOver, bool]]:
    """The output with the rollout's fault, and whether that has changed anything."""
    own = HandedOver(rollout.session_id, tuple(output.response_mask))
    changed = rollout.plants.hand_over(own)
    if changed == own:
        return output, (own, False)
    extra_fields = dict(output.extra_fields)
    if changed.lost and has_record(extra_fields):
        trajectory = unpack_record(extra_fields)
        trajectory.flags.append(LOST_FLAG)
        extra_fields |= pack_record(trajectory)
    update = {"response_mask": list(changed.mask), "extra_fields": extra_fields}
    return output.model_copy(update=update), (changed, True)


def _flags(output: AgentLoopOutput) -> list[str]:
    """Of the record, where the loop is ours and this is the sequence that the record goes with."""
    if not has_record(output.extra_fields):
        return []
    return [flag for flag in unpack_record(output.extra_fields).flags if flag != LOST_FLAG]


def tapped(manager_class: Any) -> Any:
    """A manager like this one whose workers have the taps.

    Args:
        manager_class: a subclass of verl's `AgentLoopManagerTQ`. Give the result a name in a module of yours, and name
            that in `agent_loop_manager_class`.
    """

    class TappedManager(manager_class):
        agent_loop_workers_class: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            tap_folder()  # tells before any worker starts that there is none
            super().__init__(*args, **kwargs)
            self.agent_loop_workers_class = tapped_worker(self.agent_loop_workers_class)

    return TappedManager


def tapped_worker(worker_class: Any) -> Any:
    """A Ray actor class like this one, with the taps.

    verl exports the actor class; a class can only inherit from the one inside. That one has no name to be found by, so
    Ray sends it to its workers by value, and so is this one.
    """
    bases: Sequence[type] = (LoopTap, worker_class.__ray_actor_class__)
    return ray.remote(type("TappedWorker", tuple(bases), {}))


StockManager = tapped(AgentLoopManagerTQ)
VideoManager = tapped(VideoAgentLoopManager)
