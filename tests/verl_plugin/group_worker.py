"""Our agent loop worker with verl's own code around a group, on an in-memory queue, with planted rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
import transfer_queue
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from tests.group_method import NAME
from tests.verl_plugin.harness import LARGE_PIXELS, ScriptedServer, make_row, processor, tokenizer, video
from tests.verl_plugin.trainer_batches import MemoryQueue
from verl_video_tools.core.types import CallRecord, Sample, StopReason, Trajectory, Turn, VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.verl_plugin.agent_loop import VideoAgentLoop
from verl_video_tools.verl_plugin.agent_loop_worker import BackgroundLoop, VideoAgentLoopWorker, register_group_scoring
from verl_video_tools.verl_plugin.group_router import RequestId
from verl_video_tools.verl_plugin.reward_manager import VideoToolsRewardManager
from verl_video_tools.verl_plugin.settings import pack_record

LOOP = "planted"


@dataclass(frozen=True)
class Planted:
    """A rollout whose loop returns at once, or after a while, or fails."""

    answer: str = "A"
    num_turns: int = 1
    calls: bool = False
    flags: tuple[str, ...] = ()
    lost: bool = False
    lengths: tuple[int, ...] = (3,)
    """Tokens of the response of each training sequence."""
    seconds: float = 0.0
    error: str | None = None
    row_error: bool = False
    method: str = NAME

    def trajectory(self) -> Trajectory:
        turns = [Turn(text="x") for _ in range(self.num_turns)]
        if self.calls:
            turns[0].calls = [CallRecord("choose_frames", {}, ok=True)]
        video = VideoInfo(10.0, 300, 30.0, 64, 36)
        stop_reason = StopReason.VIDEO_ERROR if self.lost else StopReason.ANSWER
        return Trajectory(
            self.method,
            "?",
            video=video,
            turns=turns,
            answer=self.answer,
            stop_reason=stop_reason,
            flags=list(self.flags),
        )


class PlantedLoop:
    """Stands for `VideoAgentLoop`; verl's worker makes one for each rollout."""

    rollouts: ClassVar[Sequence[Planted]] = ()
    fields: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **_: Any) -> None:
        pass

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        planted = self.rollouts[kwargs["session_id"]]
        if not planted.row_error:
            register_group_scoring(get_method(planted.method, **self.fields), Sample.from_row(kwargs), validate=False)
        await asyncio.sleep(planted.seconds)
        if planted.error:
            raise RuntimeError(planted.error)
        outputs = [
            AgentLoopOutput(
                prompt_ids=[1, 2],
                response_ids=[5] * length,
                response_mask=[1] * length,
                response_logprobs=[-0.5] * length,
                num_turns=3,
                metrics=AgentLoopMetrics(),
                extra_fields={"min_global_steps": 1, "max_global_steps": 1, "number": number},
            )
            for number, length in enumerate(planted.lengths)
        ]
        outputs[-1].extra_fields |= pack_record(planted.trajectory())
        return outputs if len(outputs) > 1 else outputs[0]


class ScriptedClient:
    """Stands for verl's client of the inference server: each rollout of a group has turns of its own."""

    def __init__(self, scripts: Sequence[Sequence[str]]) -> None:
        self.scripts = scripts
        self.servers: dict[int, ScriptedServer] = {}

    async def generate(self, request_id: str, **request: Any) -> Any:
        rollout = RequestId.parse(request_id)
        assert rollout is not None
        server = self.servers.setdefault(rollout.session_id, ScriptedServer(self.scripts[rollout.session_id]))
        return await server.generate(request_id=request_id, **request)


@dataclass
class GroupQueue(MemoryQueue):
    """TransferQueue's asynchronous calls on rows in memory; remembers the order of what it was asked."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Key, partition, and what was put under it: fields, or a tag."""
    refuse_second_write: bool = False

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.log.append((key, partition_id, tag))

    async def async_kv_batch_put(
        self, keys: list[str], partition_id: str, fields: TensorDict, tags: list[dict[str, Any]] | None = None
    ) -> None:
        if self.refuse_second_write and set(keys) & set(self.rows):
            raise ConnectionError("the storage unit is gone")
        await asyncio.sleep(0.01)
        self.kv_batch_put(keys, partition_id, fields)
        for key in keys:
            self.log.append((key, partition_id, {name: self.rows[key][name] for name in fields.keys()}))  # noqa: SIM118

    async def async_kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.rows[key]

    def status(self, uid: str) -> str:
        """The last tag of a group."""
        return str([put["status"] for key, _, put in self.log if key == uid][-1])

    def info(self, key: str) -> dict[str, Any]:
        return dict(self.rows[key]["extra_fields"]["reward_extra_info"])

    def scores(self) -> dict[str, float]:
        """Of each row, its one number in `rm_scores`, on the last token of the response."""
        result = {}
        for key, row in self.rows.items():
            *before, last = row["rm_scores"].tolist()
            assert len(row["rm_scores"]) == len(row["responses"]) and not any(before)
            result[key] = last
        return result


async def run_group(
    monkeypatch: pytest.MonkeyPatch,
    rollouts: Sequence[Planted | Sequence[str]],
    *,
    method_fields: Mapping[str, Any] | None = None,
    validate: bool = False,
    uid: str = "a",
    queue: GroupQueue | None = None,
    row: Mapping[str, Any] | None = None,
    reward_worker: Any = None,
    rollout_options: Mapping[str, Any] | None = None,
    worker_class: Any = VideoAgentLoopWorker.__ray_actor_class__,
    **worker_fields: Any,
) -> GroupQueue:
    """All rollouts of one question by verl's `_run_prompt` of our worker, scored by our reward manager.

    Args:
        rollouts: planted ones; or turns of the policy, for our own agent loop.
        worker_fields: what the worker has else than no model.
    """
    queue = queue or GroupQueue()
    for name in (
        "async_kv_put",
        "async_kv_batch_put",
        "async_kv_clear",
    ):  # of the package, since Ray sends verl's worker by value
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
    fields = {"ccv": False, "choose_bonus": 0.0, **(method_fields or {})}
    monkeypatch.setattr(PlantedLoop, "rollouts", rollouts)
    monkeypatch.setattr(PlantedLoop, "fields", fields)
    entry = {"_target_": f"{__name__}.PlantedLoop"}
    if not isinstance(rollouts[0], Planted):
        entry = {"_target_": f"{VideoAgentLoop.__module__}.VideoAgentLoop", "method": NAME}
        worker_fields = {"llm_client": ScriptedClient(rollouts), **worker_fields}
    monkeypatch.setitem(agent_loop._agent_loop_registry, LOOP, entry)
    role = {"strategy": "fsdp2", "fsdp_config": {"mixed_precision": None}}
    rollout = {"n": len(rollouts), "val_kwargs": {"n": len(rollouts)}, "custom": {"video_tools": {NAME: fields}}}
    rollout |= rollout_options or {}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"actor": role, "ref": role, "rollout": rollout, "model": {"path": ""}},
            "data": {"mm_processor_kwargs": LARGE_PIXELS},
            "reward": {"num_workers": 1, "reward_model": {"enable": False}},
        }
    )
    worker = object.__new__(worker_class)
    worker.config, worker.processor, worker.tokenizer = config, None, None
    worker.llm_client = worker.hf_model_type = worker.dataset_cls = None
    worker.tools, worker.mm_processor_kwargs, worker.distillation_enabled = [], LARGE_PIXELS, False
    worker._finished, worker._start, worker._stores_images = BackgroundLoop("finished rollouts"), asyncio.Lock(), False
    for name, value in worker_fields.items():
        setattr(worker, name, value)
    score = reward_worker or VideoToolsRewardManager(config, tokenizer=None).run_single
    worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=score))]
    prompt = {**(row or make_row("v.mp4")), "uid": uid, "agent_name": LOOP}
    prompt.pop("session_id")
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": validate}
    await asyncio.create_task(worker._run_prompt(prompt, {"temperature": 1.0}, trajectory=trajectory))
    return queue


async def run_own_group(
    monkeypatch: pytest.MonkeyPatch, scripts: Sequence[Sequence[str]], method_fields: Mapping[str, Any], **options: Any
) -> GroupQueue:
    """`run_group` of our own agent loop on a real video, with real tokens."""
    return await run_group(
        monkeypatch,
        scripts,
        method_fields=method_fields,
        row=make_row(video()),
        rollout_options={"prompt_length": 4096, "response_length": 4096, "calculate_log_probs": True},
        processor=processor(),
        tokenizer=tokenizer(),
        hf_model_type="qwen2_5_vl",
        **options,
    )


def trained_rows(queue: GroupQueue) -> dict[str, dict[str, Any]]:
    """Rows as the trainer's advantage step reads them."""
    for row in queue.rows.values():
        length = len(row["responses"])
        row |= {"old_log_probs": torch.zeros(length), "ref_log_prob": torch.zeros(length)}
    return queue.rows
