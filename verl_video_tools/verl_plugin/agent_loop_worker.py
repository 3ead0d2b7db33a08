"""verl's agent loop workers, for rollouts of many images.

They can score a rollout of several multimodal sequences. verl 0.9.1 pads these into one batch for the reward worker,
and position ids of shape (4, L) along the wrong axis: it fails ("The size of tensor a must match the size of tensor b")
where two lengths differ.

They score and validate without pixels. For scoring verl runs the processor over all images, once more than for
training, and keeps what comes out while a judge thinks; for validation it keeps tensors that nobody reads. Rewards read
the record, and need none.

They leave the processor to whoever runs the model (`pixel_values`): a row refers to its images, which lie in the queue
once (`stored_images`). verl would run it here, on the event loop that all rollouts of the worker share, and keep its
tensors in the queue for each rollout. With `video_tools.stored_images=false` the rows
hold verl's tensors, in the precision in which the model will read them: verl keeps the processor's float32, though FSDP
casts it to bfloat16 before anything else.

They compare the rollouts of a group before it is finished, where the method does (`group_scores`).

What verl does with a finished rollout runs in an event loop of its own (`background_loop`): it makes tensors of token
lists for milliseconds, in which no other rollout of the worker could take its next turn.

Selected by the trainer `video_tools` through verl's option `rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.tokenizer import get_processor_token_id
from verl.utils.torch_dtypes import PrecisionType

from verl_video_tools.core.types import ImagePart
from verl_video_tools.rollout.tokens import placeholder_runs
from verl_video_tools.verl_plugin.model_inputs import image_grids_N3, position_ids_4L
from verl_video_tools.verl_plugin.pixel_values import StoredPixelValues
from verl_video_tools.verl_plugin.stored_images import BlockWriter, ImageSlice, merged

# verl exports the Ray actor; a class can only inherit from the one inside. That one has no name to be found by, so Ray
# sends it to its workers by value; the class below must not have one either, or the two would come apart there.
_Worker: Any = AgentLoopWorkerTQ.__ray_actor_class__


@dataclass
class RowInputs:
    """What a training row holds of one sequence beside its tokens."""

    multi_modal_inputs: dict[str, Any]
    position_ids_4L: torch.Tensor


@dataclass
class RolloutTask:
    """What the worker's methods know about the rollout that they are called for.

    Attributes:
        takes_image_parts: the agent loop may hand over its images as they are, not as PIL images for verl.
        needs_pixels: verl's methods are called for a row that is trained on, not for the reward worker or validation.
        rows: of the rollout's sequences, in order, each still to be asked for.
    """

    takes_image_parts: bool
    needs_pixels: bool = True
    rows: list[RowInputs] = field(default_factory=list)


IMAGE_PARTS = "image_parts"
"""Entry of `AgentLoopOutput.multi_modal_data`: a list of `ImagePart`, where verl has `images`, a list of PIL images."""

_rollout_task: ContextVar[RolloutTask] = ContextVar("rollout_task")


def rollout_task() -> RolloutTask:
    """Of the running asyncio task. The methods below import it, since a context variable cannot be sent by value."""
    if (task := _rollout_task.get(None)) is None:
        task = begin_rollout(takes_image_parts=False)
    return task


def begin_rollout(takes_image_parts: bool) -> RolloutTask:
    task = RolloutTask(takes_image_parts)
    _rollout_task.set(task)
    return task


def takes_image_parts() -> bool:
    """Whether the worker that runs this rollout knows `IMAGE_PARTS`."""
    return rollout_task().takes_image_parts


def stores_images(config: DictConfig) -> bool:
    """Whether rows refer to images in the queue. verl's distillation needs the images themselves.

    Args:
        config: verl's whole configuration.
    """
    chosen = OmegaConf.select(config, "actor_rollout_ref.rollout.custom.video_tools.stored_images", default=True)
    return bool(chosen) and not OmegaConf.select(config, "distillation.enabled", default=False)


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


async def row_inputs(
    outputs: Sequence[AgentLoopOutput],
    writer: BlockWriter,
    processor: Any,
    mm_processor_kwargs: Mapping[str, Any],
    dtype: torch.dtype,
    *,
    uid: str,
    session_id: int,
) -> list[RowInputs]:
    """What training rows hold of a rollout's sequences. Their images, `IMAGE_PARTS`, are put into the queue."""
    sequences: list[list[ImagePart]] = [(output.multi_modal_data or {})[IMAGE_PARTS] for output in outputs]
    image_token_id = get_processor_token_id(processor, "image")
    num_initial = len(placeholder_runs(outputs[0].prompt_ids, image_token_id))
    # Several sequences of one rollout show the same images; a dropped one may be seen by none but the first.
    distinct = list({id(image): image for images in sequences for image in images}.values())
    slices = await writer.write(uid, session_id, num_initial, distinct)
    places = dict(zip(map(id, distinct), slices, strict=True))

    def row(output: AgentLoopOutput, images: Sequence[ImagePart]) -> RowInputs:
        return _row(output, images, [places[id(image)] for image in images], processor, mm_processor_kwargs, dtype)

    return [await asyncio.to_thread(row, output, images) for output, images in zip(outputs, sequences, strict=True)]


def _row(
    output: AgentLoopOutput,
    images: Sequence[ImagePart],
    slices: Sequence[ImageSlice],
    processor: Any,
    mm_processor_kwargs: Mapping[str, Any],
    dtype: torch.dtype,
) -> RowInputs:
    grids_N3 = image_grids_N3(processor.image_processor, [image.record for image in images])
    inputs = {
        "pixel_values": StoredPixelValues(merged(slices), processor.image_processor, mm_processor_kwargs, dtype),
        "image_grid_thw": grids_N3,
        "images_seqlens": torch.repeat_interleave(grids_N3[:, 1] * grids_N3[:, 2], grids_N3[:, 0]),
    }
    return RowInputs(inputs, position_ids_4L(processor, [*output.prompt_ids, *output.response_ids], inputs))


@ray.remote
class VideoAgentLoopWorker(_Worker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        import gc

        from verl_video_tools.verl_plugin.agent_loop_worker import stores_images
        from verl_video_tools.verl_plugin.background_loop import BackgroundLoop
        from verl_video_tools.verl_plugin.stored_images import BlockWriter

        super().__init__(*args, **kwargs)
        self._writer = BlockWriter()
        self._start = asyncio.Lock()
        self._finished = BackgroundLoop("finished rollouts")
        self._stores_images = stores_images(self.config)
        # Modules and models that live as long as the process: Python's garbage collector would walk through them again
        # and again, for half a second at a time, on the event loop as on any other thread.
        gc.collect()
        gc.freeze()

    async def _run_prompt(self, *args: Any, trajectory: Mapping[str, Any], **kwargs: Any) -> None:
        """Each group is an asyncio task of its own, and ends with the tag that lets others read its rewards."""
        from verl_video_tools.verl_plugin.group_scores import begin_group

        begin_group(validates=bool(trajectory["validate"]))
        await super()._run_prompt(*args, trajectory=trajectory, **kwargs)

    def _run_agent_loop(self, *args: Any, **kwargs: Any) -> Any:
        """A coroutine for one rollout. verl asks for those of all rollouts of a group before it starts any."""
        from verl_video_tools.verl_plugin.group_scores import running_group

        if (group := running_group()) is not None:
            group.num_running += 1
        return self._run_rollout(*args, **kwargs)

    async def _run_rollout(self, *args: Any, **kwargs: Any) -> Any:
        """Each rollout is an asyncio task of its own, and has its own `rollout_task`."""
        from verl_video_tools.verl_plugin.agent_loop_worker import begin_rollout
        from verl_video_tools.verl_plugin.group_scores import running_group

        begin_rollout(self._stores_images)
        try:
            async with self._start:  # one after the other: verl starts all rollouts of a batch at once
                await asyncio.sleep(0)
            return await super()._run_agent_loop(*args, **kwargs)
        finally:
            if (group := running_group()) is not None and group.settle():
                await self._finished.run(self._compare(group))

    async def _compare(self, group: Any) -> None:
        """All rollouts of a group have settled; verl's task of the group has not been told of this one yet."""
        from verl_video_tools.verl_plugin.group_scores import remove_rows, write_rewards

        try:
            await write_rewards(group.compare())
        except Exception:
            await remove_rows(group.rollouts.values())  # some may have their new reward, and others not
            raise

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **kwargs: Any
    ) -> None:
        """Leaves the event loop of the rollouts."""
        await self._finished.run(self._store_rollout(output, validate, **kwargs))

    async def _store_rollout(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **kwargs: Any
    ) -> None:
        """Prepares in threads what verl's method would compute on its event loop."""
        from verl_video_tools.verl_plugin.agent_loop_worker import IMAGE_PARTS, forward_dtype, rollout_task, row_inputs
        from verl_video_tools.verl_plugin.group_scores import running_group

        task = rollout_task()
        task.needs_pixels = not validate
        outputs = output if isinstance(output, list) else [output]
        if all(IMAGE_PARTS in (sequence.multi_modal_data or {}) for sequence in outputs):
            if not validate:
                task.rows = await row_inputs(
                    outputs,
                    self._writer,
                    self.processor,
                    dict(self.mm_processor_kwargs or {}),
                    forward_dtype(self.config.actor_rollout_ref),
                    uid=kwargs["uid"],
                    session_id=kwargs["session_id"],
                )
            # verl would make a dictionary of each image's fields.
            outputs = [sequence.model_copy(update={"multi_modal_data": None}) for sequence in outputs]
        await super()._agent_loop_postprocess(outputs, validate, **kwargs)
        if not validate and (group := running_group()) is not None:
            group.add(outputs, kwargs["uid"], kwargs["session_id"])

    async def _compute_score(self, outputs: list[AgentLoopOutput], kwargs: dict[str, Any]) -> None:
        """The record travels with the last sequence, and verl hands the reward on to the others."""
        from verl_video_tools.verl_plugin.agent_loop_worker import rollout_task
        from verl_video_tools.verl_plugin.group_scores import running_group

        task = rollout_task()
        is_trained, task.needs_pixels = task.needs_pixels, False
        try:
            await super()._compute_score(outputs[-1:], kwargs=kwargs)
        finally:
            task.needs_pixels = is_trained
        if is_trained and (group := running_group()) is not None:
            group.check_scored(outputs[-1])

    def _compute_multi_modal_inputs(self, output: AgentLoopOutput, input_ids: torch.Tensor) -> dict[str, Any]:
        """What was prepared; else verl's own, in the precision in which the model will read it."""
        from verl_video_tools.verl_plugin.agent_loop_worker import forward_dtype, rollout_task

        task = rollout_task()
        if not task.needs_pixels:
            return {}
        if task.rows:
            return dict(task.rows[0].multi_modal_inputs)
        inputs: dict[str, Any] = super()._compute_multi_modal_inputs(output, input_ids)
        if "pixel_values" in inputs:
            inputs["pixel_values"] = inputs["pixel_values"].to(forward_dtype(self.config.actor_rollout_ref))
        return inputs

    def _compute_position_ids(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Of shape (1, 4, L) for training, (1, L) for the reward worker and for validation, where nobody reads them.

        verl asks for a sequence's positions right after its other inputs, and for one sequence after the other.
        """
        from verl_video_tools.verl_plugin.agent_loop_worker import rollout_task

        task = rollout_task()
        if not task.needs_pixels:
            return torch.arange(input_ids.shape[-1]).unsqueeze(0)
        if task.rows:
            return task.rows.pop(0).position_ids_4L.unsqueeze(0)
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
