"""verl's agent loop workers, for rollouts of many images.

They can score a rollout of several multimodal sequences. verl 0.9.1 pads these into one batch for the reward worker,
and position ids of shape (4, L) along the wrong axis: it fails ("The size of tensor a must match the size of tensor b")
where two lengths differ.

They score and validate without pixels. For scoring verl runs the processor over all images, once more than for
training, and keeps what comes out while a judge thinks; for validation it keeps tensors that nobody reads. Rewards read
the record, and need none.

They leave the processor to the process that runs the model (`images`): a row refers to its images, which lie in the
queue once. verl would run it here, on the event loop that all rollouts of the worker share, and keep its tensors in the
queue for each rollout. With `video_tools.stored_images=false` the rows hold verl's tensors, in the precision in which
the model will read them: verl keeps the processor's float32, though FSDP casts it to bfloat16 before anything else.

They compare the rollouts of a group where the method does (`Method.score_group`). verl scores each rollout by itself,
writes its rows to TransferQueue, and puts the tag `finished` on the group once its last rollout has ended; readers
of rewards wait for that tag. So the last rollout to end compares all of them and writes rewards and records again
before it ends: filtering, metrics, records and advantages see one value. Nothing happens for methods without
`group_components`, nor in validation.

What verl does with a finished rollout runs in an event loop of its own (`BackgroundLoop`): it makes tensors of token
lists for milliseconds, in which no other rollout of the worker could take its next turn.

Selected by the trainer `video_tools` through verl's option `rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ray
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.tokenizer import get_processor_token_id
from verl.utils.torch_dtypes import PrecisionType

from verl_video_tools.core.errors import GroupScoreError, UsageError
from verl_video_tools.core.machine import page
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.trajectory import GROUP_SCORE_FLAG
from verl_video_tools.core.types import ImagePart, Method, Sample, Trajectory
from verl_video_tools.methods.breakdown import group_rewards
from verl_video_tools.rollout.tokens import placeholder_runs
from verl_video_tools.verl_plugin import queue
from verl_video_tools.verl_plugin.images import (
    BlockWriter,
    StoredPixelValues,
    image_grids_N3,
    merged,
    position_ids_4L,
)
from verl_video_tools.verl_plugin.settings import TURN_REWARDS, pack_record, unpack_record
from verl_video_tools.video import share_cpus

# ----------------------------------------------------------------------------------------------- the groups of a worker


logger = logging.getLogger(__name__)


@dataclass
class StoredRollout:
    """One scored rollout, as its rows are in the queue."""

    keys: list[str]
    """Of its sequences, in order of turns; the record is with the last."""
    outputs: list[AgentLoopOutput]
    """Its sequences, without tokens and images."""

    @property
    def info(self) -> dict[str, Any]:
        return dict(self.outputs[-1].extra_fields["reward_extra_info"])

    def rewrite(self, info: Mapping[str, Any], trajectory: Trajectory | None = None) -> None:
        """Give every sequence the reward, and the last one the record where it has changed."""
        for output in self.outputs:
            output.reward_score = float(info["score"])
            output.extra_fields = {**output.extra_fields, "reward_extra_info": dict(info)}
        if trajectory is not None:
            self.outputs[-1].extra_fields |= pack_record(trajectory)

    def rows(self) -> list[dict[str, Any]]:
        """What changes of its rows, in the form in which verl stores it."""
        stored = [output.as_dict() for output in self.outputs]
        return [{name: row[name] for name in ("rm_scores", "extra_fields")} for row in stored]


@dataclass
class RolloutGroup:
    """The rollouts of one question while they run; `compare` is called once, when the last of them has ended."""

    num_running: int = 0
    method: Method | None = None
    """The run's, where it compares the rollouts of a group, or pays single turns."""
    sample: Sample | None = None
    rollouts: dict[int, StoredRollout] = field(default_factory=dict)
    """By the number of the rollout in the group. One whose loop, scoring or storing failed is missing."""
    validates: bool = False
    """Whether it is one of validation."""

    def check_scored(self, output: AgentLoopOutput) -> None:
        """Called before verl stores a rollout's rows, which it would train on even if the group has failed.

        Args:
            output: the rollout's last sequence.

        Raises:
            UsageError: verl has not scored it yet, or another reward manager than ours has.
        """
        if self.method is None:
            return
        if output.reward_score is None:
            raise UsageError(
                f"{self.method.name} compares the rollouts of a group or pays single turns, and verl scores them only "
                "after the group has finished; set reward.reward_model.enable_resource_pool=True, or no "
                "reward.reward_model at all"
            )
        info = output.extra_fields.get("reward_extra_info") or {}
        if missing := sorted({"score", "acc", "flagged", *self.method.reward_components} - set(info)):
            raise UsageError(
                f"{self.method.name} needs the rewards of VideoToolsRewardManager, and "
                f"these lack {', '.join(missing)}; select it with reward.reward_manager ({page('groups')})"
            )

    def add(self, outputs: Sequence[AgentLoopOutput], uid: str, session_id: int) -> None:
        """Take in a rollout that verl has scored and stored."""
        if self.method is None or not self.method.group_components:
            return
        keys = [f"{uid}_{session_id}_{index}" for index in range(len(outputs))]
        self.rollouts[session_id] = StoredRollout(keys, [_without_tokens(output) for output in outputs])

    def mark_finished(self) -> bool:
        """Count a rollout that has ended, in whatever way; whether it was the last one."""
        self.num_running -= 1
        return self.num_running == 0

    def compare(self) -> list[StoredRollout]:
        """The rollouts whose rewards are others now. Flagged and lost ones are left out, and keep theirs: nothing."""
        if self.method is None or self.sample is None:
            return []
        compared: list[StoredRollout] = []
        trajectories: list[Trajectory] = []
        for _, rollout in sorted(self.rollouts.items()):
            trajectory = unpack_record(rollout.outputs[-1].extra_fields)
            if not rollout.info["flagged"] and not trajectory.is_lost():
                compared.append(rollout)
                trajectories.append(trajectory)
        if len(compared) < 2:
            return []
        names = ("score", "acc", *self.method.reward_components)
        rewards = [{name: rollout.info[name] for name in names} for rollout in compared]
        try:
            group = group_rewards(self.method, trajectories, rewards, self.sample)
        except GroupScoreError as error:
            logger.exception("group of row %s: %s", self.sample.extra_info.get("index"), error)
            zero = {**zero_reward(self.method), "acc": 0.0, "flagged": 1.0}
            for rollout, trajectory in zip(compared, trajectories, strict=True):
                trajectory.flags.append(GROUP_SCORE_FLAG)
                trajectory.error = str(error)
                rollout.rewrite(rollout.info | zero, trajectory)
            return compared
        for rollout, reward in zip(compared, group, strict=True):
            rollout.rewrite(rollout.info | reward)
        return compared


_group: ContextVar[RolloutGroup | None] = ContextVar("rollout_group", default=None)


def begin_group(validates: bool = False) -> RolloutGroup:
    """For the running asyncio task and all that it starts: verl runs each question in one, and its rollouts in
    others that this one starts."""
    group = RolloutGroup(validates=validates)
    _group.set(group)
    return group


def running_group() -> RolloutGroup | None:
    """That of the running rollout; None where another worker than ours runs it."""
    return _group.get()


def register_group_scoring(method: Method, sample: Sample, validate: bool) -> None:
    """Called by the agent loop of each rollout, so that only rollouts of ours are compared.

    Args:
        method: the run's.
        validate: the rollout is one of validation, where none is compared.

    Raises:
        UsageError: the method compares rollouts or pays single turns, and nobody would: its rewards would silently lack
            a part.
    """
    if not (method.turn_components or (method.group_components and not validate)):
        return
    if (group := running_group()) is None:
        what = "compares the rollouts of a group" if method.group_components else "pays single turns"
        raise UsageError(
            f"{method.name} {what}, and the agent loop worker of this run does not: train with "
            "trainer_mode=video_tools, and derive a rollout.agent.agent_loop_manager_class of your own from "
            f"VideoAgentLoopManager ({page('groups')})"
        )
    if not validate:
        group.method, group.sample = method, sample


async def write_rewards(rollouts: Sequence[StoredRollout]) -> None:
    """Write rewards and records of a training group over those in the queue, in one request."""
    if not rollouts:
        return
    keys = [key for rollout in rollouts for key in rollout.keys]
    await queue.write_async(keys, "train", [row for rollout in rollouts for row in rollout.rows()])


async def remove_rows(rollouts: Iterable[StoredRollout]) -> None:
    """Take a training group's rows out of the queue: verl trains on what a failed group has there."""
    await queue.remove_async([key for rollout in rollouts for key in rollout.keys], "train")


def _without_tokens(output: AgentLoopOutput) -> AgentLoopOutput:
    """Only as long as the response: that is how long verl's `rm_scores` are."""
    return AgentLoopOutput(
        prompt_ids=[],
        response_ids=[],
        response_mask=output.response_mask,
        reward_score=output.reward_score,
        metrics=AgentLoopMetrics(),
        extra_fields=output.extra_fields,
    )


T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines that compute for milliseconds between two awaits, so that the caller's loop only waits for them.

    The thread lives as long as the process.

    Args:
        name: of the thread, as profilers show it.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, or its exception. It sees the caller's context variables; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


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
        rows: of the rollout's sequences, in order, each still to be taken by verl.
    """

    takes_image_parts: bool
    needs_pixels: bool = True
    rows: list[RowInputs] = field(default_factory=list)


IMAGE_PARTS = "image_parts"
"""Entry of `AgentLoopOutput.multi_modal_data`: a list of `ImagePart`, where verl has `images`, a list of PIL images."""

_rollout_task: ContextVar[RolloutTask] = ContextVar("rollout_task")


def rollout_task() -> RolloutTask:
    """Of the running asyncio task."""
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
        slices = merged(places[id(image)] for image in images)
        grids_N3 = image_grids_N3(processor.image_processor, [image.record for image in images])
        inputs = {
            "pixel_values": StoredPixelValues(slices, processor.image_processor, mm_processor_kwargs, dtype),
            "image_grid_thw": grids_N3,
            "images_seqlens": torch.repeat_interleave(grids_N3[:, 1] * grids_N3[:, 2], grids_N3[:, 0]),
        }
        ids = [*output.prompt_ids, *output.response_ids]
        return RowInputs(inputs, position_ids_4L(processor, image_token_id, ids, inputs))

    return [await asyncio.to_thread(row, output, images) for output, images in zip(outputs, sequences, strict=True)]


_Base: Any = object  # the methods below are those of verl's worker, which the class is combined with


class RolloutWorker(_Base):
    """What `VideoAgentLoopWorker` does otherwise than verl's worker."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._writer = BlockWriter()
        self._start = asyncio.Lock()
        self._finished = BackgroundLoop("finished rollouts")
        self._stores_images = stores_images(self.config)
        num_workers = OmegaConf.select(self.config, "actor_rollout_ref.rollout.agent.num_workers", default=1)
        share_cpus(math.ceil(num_workers / OmegaConf.select(self.config, "trainer.nnodes", default=1)))
        # Modules and models that live as long as the process: Python's garbage collector would walk through them again
        # and again, for half a second at a time, on the event loop as on any other thread.
        gc.collect()
        gc.freeze()

    async def _run_prompt(self, *args: Any, trajectory: Mapping[str, Any], **kwargs: Any) -> None:
        """Each group is an asyncio task of its own, and ends with the tag that lets others read its rewards."""
        begin_group(validates=bool(trajectory["validate"]))
        await super()._run_prompt(*args, trajectory=trajectory, **kwargs)

    def _run_agent_loop(self, *args: Any, **kwargs: Any) -> Any:
        """A coroutine for one rollout. verl makes those of all rollouts of a group before it starts any."""
        if (group := running_group()) is not None:
            group.num_running += 1
        return self._run_rollout(*args, **kwargs)

    async def _run_rollout(self, *args: Any, **kwargs: Any) -> Any:
        """Each rollout is an asyncio task of its own, and has its own `rollout_task`."""
        begin_rollout(self._stores_images)
        try:
            async with self._start:  # one after the other: verl starts all rollouts of a batch at once
                await asyncio.sleep(0)
            return await super()._run_agent_loop(*args, **kwargs)
        finally:
            if (group := running_group()) is not None and group.mark_finished():
                await self._finished.run(self._compare(group))

    async def _compare(self, group: Any) -> None:
        """All rollouts of a group have ended; verl's task of the group does not know about the last one yet."""
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
        task = rollout_task()
        is_trained, task.needs_pixels = task.needs_pixels, False
        try:
            await super()._compute_score(outputs[-1:], kwargs=kwargs)
        finally:
            task.needs_pixels = is_trained
        info = outputs[-1].extra_fields.get("reward_extra_info") or {}
        if TURN_REWARDS in info:
            outputs[-1].extra_fields[TURN_REWARDS] = info.pop(TURN_REWARDS)
        if is_trained and (group := running_group()) is not None:
            group.check_scored(outputs[-1])

    def _compute_multi_modal_inputs(self, output: AgentLoopOutput, input_ids: torch.Tensor) -> dict[str, Any]:
        """What was prepared; else verl's own, in the precision in which the model will read it."""
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

        verl computes a sequence's positions right after its other inputs, and for one sequence after the other.
        """
        task = rollout_task()
        if not task.needs_pixels:
            return torch.arange(input_ids.shape[-1]).unsqueeze(0)
        if task.rows:
            return task.rows.pop(0).position_ids_4L.unsqueeze(0)
        return super()._compute_position_ids(input_ids, *args, **kwargs)


# verl exports the Ray actor; a class can only inherit from the one inside. That one has no name to be found by, so Ray
# sends it to its workers by value, and the class below as well. All that is ours is in `RolloutWorker`, which is sent
# by its name: there, too, it shares the context variables of this module.
_Worker: Any = AgentLoopWorkerTQ.__ray_actor_class__


@ray.remote
class VideoAgentLoopWorker(RolloutWorker, _Worker):
    pass


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
