"""Conformance runs without Ray and vLLM: verl's own worker code and real loops, an engine in this process.

The engine says what a script says, with the log-probabilities that the tiny model has on what the engine was given; so
a picture that only the engine sees otherwise shows where it would in a run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_module
from PIL import Image
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.workers.rollout.replica import TokenOutput

from verl_video_tools.config import config_path
from verl_video_tools.loop_check import callback, reference
from verl_video_tools.loop_check.client import running
from verl_video_tools.loop_check.images import given_images
from verl_video_tools.loop_check.records import FOLDER_VARIABLE
from verl_video_tools.loop_check.worker import LoopTap
from verl_video_tools.verl_plugin.settings import has_record, unpack_record

MODEL = Path(__file__).parents[2] / "examples" / "tiny_models" / "base"
GROUP_SIZE = 3
SCORES = (1.0, 0.0, 0.5)
"""Of the rollouts of each group."""


class Engine:
    """Stands for verl's `LLMServerClient`. `turns` are said by each rollout in order."""

    def __init__(self, turns: Sequence[str]) -> None:
        self._turns = turns
        self._said: Counter[tuple[str, int]] = Counter()
        self._tokenizer = reference.load(MODEL)[1].tokenizer

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
        **kwargs: Any,
    ) -> TokenOutput:
        rollout = running.get()
        assert rollout is not None
        number = self._said[rollout.uid, rollout.session_id]
        self._said[rollout.uid, rollout.session_id] += 1
        ids = self._tokenizer.encode(f"{self._turns[number]}<|im_end|>", add_special_tokens=False)
        images = [Image.fromarray(pixels_HWC) for _, pixels_HWC in await given_images(image_data)]
        log_probs = reference.token_log_probs(MODEL, [*prompt_ids, *ids], images, banned=True)
        return TokenOutput(
            token_ids=ids, log_probs=log_probs[len(prompt_ids) - 1 :].tolist(), extra_fields={"global_steps": 0}
        )


class Queue:
    """The part of TransferQueue that a worker writes and the callback reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.blocks: dict[str, dict[str, Any]] = {}
        self.status: dict[str, str] = {}
        monkeypatch.setattr(tq, "init", lambda *_, **__: None)
        monkeypatch.setattr(tq, "async_kv_put", self.async_kv_put)
        monkeypatch.setattr(tq, "async_kv_batch_put", self.async_kv_batch_put)
        monkeypatch.setattr(tq, "kv_batch_put", self.kv_batch_put)
        monkeypatch.setattr(tq, "kv_list", self.kv_list)
        monkeypatch.setattr(tq, "kv_batch_get", self.kv_batch_get)

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.status[key] = tag["status"]

    async def async_kv_batch_put(self, keys: list[str], fields: TensorDict, **_: Any) -> None:
        for i, key in enumerate(keys):
            self.rows[key] = {name: fields[name][i] for name in fields.keys()}  # noqa: SIM118

    def kv_batch_put(self, keys: list[str], fields: TensorDict, **_: Any) -> None:
        self.blocks |= {key: {name: fields[name][i] for name in ("pixels", "sizes")} for i, key in enumerate(keys)}

    def kv_list(self, partition_id: str) -> dict[str, Any]:
        prompts = {uid: {"is_prompt": True, "status": status} for uid, status in self.status.items()}
        padding = {"padding_0_0": {"is_padding": True}}
        return {partition_id: {**prompts, **padding, **{key: {} for key in self.rows}}}

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        held = {**self.rows, **self.blocks}
        if missing := [name for name in select_fields if name not in held[keys[0]]]:
            raise ValueError(f"empty fields {missing}")
        return {name: [held[key][name] for key in keys] for name in select_fields}


def run_config(*options: str, agent_name: str) -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={MODEL}",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
                "actor_rollout_ref.rollout.prompt_length=1024",
                "actor_rollout_ref.rollout.response_length=1024",
                "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=2048",
                "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={config_path('agent-loops')}",
                f"actor_rollout_ref.rollout.agent.default_agent_loop={agent_name}",
                "actor_rollout_ref.actor.strategy=fsdp2",
                "actor_rollout_ref.ref.strategy=fsdp2",
                "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
                "+actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype=fp32",
                "algorithm.adv_estimator=grpo",
                *options,
            ],
        )


async def conformance_run(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    manager: Any,
    config: Any,
    rows: Sequence[dict[str, Any]],
    turns: Sequence[str],
    knows_flags: bool,
) -> Queue:
    """One step on a group for each row, and what the taps write of it.

    Args:
        manager: of `loop_check.worker`; only the class of its workers is used.
        rows: as verl's worker gets them, with `raw_prompt`.
        knows_flags: flagged rollouts are left out of mean and loss, as by our trainer; verl's own counts them.
    """
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    monkeypatch.setenv("VVT_VLLM_FRONT_END", "stock")  # references to images live in Ray's object store
    queue = Queue(monkeypatch)

    async def score(data: Any) -> dict[str, Any]:
        value = SCORES[int(data.non_tensor_batch["session_id"][0])]
        return {"reward_score": value, "reward_extra_info": {"score": value}}

    scorer = SimpleNamespace(compute_score=SimpleNamespace(remote=score))
    worker = worker_class_of(manager)(config, Engine(turns), reward_loop_worker_handles=[scorer])
    tap = callback.TrainedTap(config)
    uids = [uuid4().hex for _ in rows]  # of their own: a process keeps images of the queue by the keys of their groups
    for number, (uid, row) in enumerate(zip(uids, rows, strict=True)):
        batch = TensorDict({}, batch_size=[1])
        for name, value in (row | {"uid": uid}).items():
            batch[name] = NonTensorStack(value)
        batch["global_steps"], batch["index"] = torch.tensor([1]), torch.tensor([number])
        await worker.generate_sequences(batch)
        await asyncio.gather(*worker.background_tasks)
    for uid in uids:
        train({key: row for key, row in queue.rows.items() if key.startswith(f"{uid}_")}, knows_flags)
    tap.on_save(trainer=None, global_step=1, checkpoint_dir="", async_save=False)
    return queue


def worker_class_of(manager: Any) -> Any:
    """The class inside the actor class of a manager's workers."""
    instance = manager(run_config(agent_name="tool_agent"), None)
    worker_class = instance.agent_loop_workers_class.__ray_actor_class__
    assert issubclass(worker_class, LoopTap)
    return worker_class


def train(group: dict[str, dict[str, Any]], knows_flags: bool) -> None:
    """What a step adds to the rows of a group, with verl's own formula, and an actor that reads the row's positions.

    A rollout's record goes with its last sequence, and its advantage with all of them.
    """
    last = {key.rsplit("_", 1)[0]: key for key in sorted(group)}
    valid = []
    for rollout, key in last.items():
        extra_fields = getattr(group[key]["extra_fields"], "data", group[key]["extra_fields"])
        if not (knows_flags and has_record(extra_fields) and unpack_record(extra_fields).flags):
            valid.append(rollout)
    scores = torch.tensor([float(group[last[rollout]]["rm_scores"].sum()) for rollout in valid])
    advantages = dict.fromkeys(last, 0.0)
    if len(scores):
        values, _ = compute_grpo_outcome_advantage(
            scores[:, None], torch.ones(len(scores), 1), np.zeros(len(scores), dtype=int)
        )
        advantages |= dict(zip(valid, values[:, 0].tolist(), strict=True))
    for key, row in group.items():
        rollout = key.rsplit("_", 1)[0]
        row["response_mask"] = row["response_mask"] * (rollout in valid)
        row["advantages"] = advantages[rollout] * row["response_mask"]
        row["old_log_probs"] = actor_log_probs(row)


def actor_log_probs(row: dict[str, Any]) -> torch.Tensor:
    """Of the response, by the model on the row's own positions and pixels."""
    model = reference.load(MODEL)[0]
    inputs = getattr(row["multi_modal_inputs"], "data", row["multi_modal_inputs"])
    with torch.no_grad():
        logits = model(
            input_ids=row["input_ids"][None],
            attention_mask=torch.ones_like(row["input_ids"])[None],
            position_ids=row["position_ids"][1:, None],
            pixel_values=torch.cat([inputs["pixel_values"]]).float(),
            image_grid_thw=inputs["image_grid_thw"],
        ).logits[0]
    log_probs = logits[:-1].log_softmax(-1).gather(1, row["input_ids"][1:, None]).squeeze(1)
    return log_probs[len(row["prompts"]) - 1 :]
