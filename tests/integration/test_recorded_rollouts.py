"""The same rollouts as verl's rows and as ours give the same update, bit for bit in float32.

Tokens and frames are fixed by a script of turns. verl's worker runs the processor over all images and keeps its tensors
in the row; ours keeps the pixels in 8 bits and lets whoever runs the model make the tensors. What follows is verl's own
code for both, from advantages by our trainer to gradients of verl's loss.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from transformers import AutoModelForImageTextToText
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.workers.config import ActorConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding, response_to_nested

from tests.integration.groups import GROUP, clear_queue, keys_of_group, one_group, run_config
from tests.turns import framethinker, tagged, videobrain
from tests.verl_plugin.harness import model_dir, video
from tests.verl_plugin.trainer_batches import make_trainer
from verl_video_tools.synthetic import FAMILIES, Family
from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
from verl_video_tools.verl_plugin.images import PARTITION_ID

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("transfer_queue")]

FLOAT32 = [
    f"+actor_rollout_ref.{role}.fsdp_config.mixed_precision.{part}_dtype=fp32"
    for role in ("actor", "ref")
    for part in ("param", "reduce", "buffer")
]


@dataclass(frozen=True)
class Turns:
    """Two calls and an answer in a method's grammar, and fields that fit its frames into a small test."""

    first: str
    second: str
    right: str
    wrong: str
    fields: Mapping[str, Any]


def crop(start: float, end: float) -> str:
    return tagged.think(tagged.tool_call("crop_video", video_path=video(), start_time=start, end_time=end))


def clip(call: str) -> str:
    return f"<think>a</think><tool_call>{call}</tool_call><turn_sum>b</turn_sum>"


FEW = {"initial_frames": 4, "call_frames": 4}
TAGGED = {"right": tagged.answer("B"), "wrong": tagged.answer("C")}
METHODS = {
    "framethinker": Turns(
        framethinker.choose(10, 40),
        framethinker.choose(50, 90),
        framethinker.answer("B"),
        framethinker.answer("C"),
        fields=FEW,
    ),
    "videozoomer": Turns(tagged.zoom(2, 3.5), tagged.zoom(8, 9), **TAGGED, fields=FEW),
    "longvt": Turns(crop(5, 9), crop(12, 14), **TAGGED, fields={**FEW, "max_pixels": 8192}),
    "videobrain": Turns(
        videobrain.uniform(20, 60),
        videobrain.uniform(100, 140),
        videobrain.answer("B"),
        videobrain.answer("C"),
        fields=FEW,
    ),
    "framemind": Turns(
        clip("VideoClip(5, 9)"),
        clip("FrameAt(12)"),
        **TAGGED,
        fields={"low": [8, 56], "high": [4, 96], "tool_side_pixels": 64},
    ),
}


@lru_cache(maxsize=2)
def float32_model(family: Family) -> Any:
    return AutoModelForImageTextToText.from_pretrained(model_dir(family), dtype=torch.float32).eval()


def run_of(method: str, family: Family) -> Any:
    """Configuration of a run of one method in float32."""
    path = f"+actor_rollout_ref.rollout.custom.video_tools.{method}"
    fields = [f"{path}.{name}={json.dumps(value)}" for name, value in METHODS[method].fields.items()]
    return run_config(family, *FLOAT32, *fields, method=method)


def roll_out(worker_class: Any, config: Any, method: str, uid: str) -> None:
    turns = METHODS[method]
    scripts = [
        [turns.first, turns.second, turns.right],
        [turns.first, turns.wrong],
        [turns.right],
        [turns.second, turns.first, turns.wrong],
    ]
    asyncio.run(one_group(worker_class, config, uid, scripts))


def update(uid: str, family: Family) -> dict[str, torch.Tensor]:
    """What a step computes of a group's rows: inputs of the model, log-probabilities, advantages, gradients."""
    keys = keys_of_group(uid)
    batch = KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")
    names = ["input_ids", "position_ids", "multi_modal_inputs", "prompts", "responses", "response_mask"]
    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=names)
    num_tokens = int(data["response_mask"].values().sum())
    options = {"use_remove_padding": False, "pad_mode": DatasetPadMode.NO_PADDING, "temperature": 1.0}
    options |= {"calculate_entropy": True, "dp_size": 1, "batch_num_tokens": num_tokens, "global_batch_size": GROUP}
    tu.assign_non_tensor(data, **options)

    engine = SimpleNamespace(
        use_ulysses_sp=False, pad_to_length=False, engine_config=SimpleNamespace(entropy_checkpointing=False)
    )
    model = float32_model(family)
    model.zero_grad()
    inputs, output_args = FSDPEngineWithLMHead.prepare_model_inputs(engine, data)
    found = {name: inputs[name] for name in ("pixel_values", "image_grid_thw", "input_ids", "position_ids")}
    output = FSDPEngineWithLMHead.prepare_model_outputs(
        engine, model(**inputs, use_cache=False), output_args, data, None
    )
    found["log_probs"] = no_padding_2_padding(output["log_probs"], data).detach()
    found["entropy"] = no_padding_2_padding(output["entropy"], data).detach()

    old = TensorDict({"old_log_probs": response_to_nested(found["log_probs"], data["response_mask"])}, [GROUP])
    tq.kv_batch_put(keys=keys, partition_id="train", fields=old)
    make_trainer()._compute_advantage(batch, {})
    trained = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["old_log_probs", "advantages"])
    data["old_log_probs"], data["advantages"] = trained["old_log_probs"], trained["advantages"]
    found["advantages"] = trained["advantages"].values()
    actor = ActorConfig(strategy="fsdp2", ppo_micro_batch_size_per_gpu=GROUP, rollout_n=GROUP, entropy_coeff=0.01)
    loss, _ = ppo_loss(actor, output, data)
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    assert any("visual" in name for name in gradients)
    return {**found, "loss": loss.detach(), **gradients}


def differing(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> set[str]:
    assert one.keys() == other.keys()
    return {name for name in one if one[name].dtype != other[name].dtype or not torch.equal(one[name], other[name])}


def pairs() -> list[Any]:
    """Every method with the first family, and a method with frames of two sizes with the other; the rest is `long`."""
    short = {(method, FAMILIES[0]) for method in METHODS} | {("framemind", family) for family in FAMILIES}
    return [
        pytest.param(method, family, marks=[] if (method, family) in short else pytest.mark.long)
        for method in METHODS
        for family in FAMILIES
    ]


@pytest.mark.parametrize(("method", "family"), pairs())
def test_the_update_is_that_of_verls_rows(method: str, family: Family) -> None:
    config, uid = run_of(method, family), f"ours-{method}-{family}".replace("_", "-")
    roll_out(AgentLoopWorkerTQ, config, method, "verls")
    roll_out(VideoAgentLoopWorker, config, method, uid)
    blocks = list(tq.kv_list()[PARTITION_ID])
    assert not any(key.startswith("verls") for key in blocks)
    assert sum("-called" in key for key in blocks) == 3  # calls of three rollouts were executed
    verls, ours = update("verls", family), update(uid, family)
    assert differing(verls, ours) == set()
    assert ours["pixel_values"].dtype == torch.float32
    assert ours["advantages"].unique().numel() > 2  # the group's rewards differ
    assert sum(bool(value.any()) for value in ours.values()) == len(ours)
    clear_queue()


def test_one_other_pixel_changes_the_update() -> None:
    """Of the frames that all rollouts of the group start with."""
    config = run_of("framethinker", "qwen2_5_vl")
    roll_out(AgentLoopWorkerTQ, config, "framethinker", "verls")
    roll_out(VideoAgentLoopWorker, config, "framethinker", "altered")
    (key,) = [key for key in tq.kv_list()[PARTITION_ID] if "_initial-" in key]
    block = tq.kv_batch_get(keys=[key], partition_id=PARTITION_ID, select_fields=["pixels"])
    pixels = block["pixels"][0].clone()
    pixels[0] ^= 128
    tq.kv_batch_put(keys=[key], partition_id=PARTITION_ID, fields=TensorDict({"pixels": pixels[None]}, [1]))
    verls, altered = update("verls", "qwen2_5_vl"), update("altered", "qwen2_5_vl")
    assert (verls["pixel_values"] != altered["pixel_values"]).sum() == GROUP * 2  # each image twice in time
    changed = differing(verls, altered)
    assert {"pixel_values", "log_probs", "entropy"} <= changed
    assert not changed & {"image_grid_thw", "input_ids", "position_ids", "advantages"}
    assert any("visual" in name for name in changed)
    clear_queue()
