"""The formulas of `vvt estimate`, by numbers that were worked out by hand, and its sizes against real objects."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.launch.plan import (
    ENGINE_OVERHEAD_BYTES,
    HOUR,
    Cluster,
    ModelShape,
    RunOptions,
    Tensors,
    Workload,
    actor_memory,
    adapter_tensors,
    engine_memory,
    find_gpu,
    find_model,
    host_memory,
    known_models,
    layer_parameters,
    list_tensors,
    logits_bytes,
    mm_cache_gb,
    num_values,
    pinned_bytes,
    plan_workload,
    processing_bytes,
    queue_image_bytes,
    recipe_options,
    text_layer_bytes,
    text_saved_bytes,
    vision_layer_bytes,
    vision_saved_bytes,
)
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.cost import estimated_tokens
from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

SMALL = ModelShape("small", (Tensors(2, 40, 10),), (Tensors(1, 20, 10),), 2, 8, 4, 2, 2, 16, 10, 1, 4, 8, 14, 2, 2)
QWEN3 = replace(SMALL, qk_norm=True, gated_vision=False, deepstack=3)
MIXTURE = replace(SMALL, intermediate=0, experts=4, experts_per_token=2, expert_intermediate=6)
HYBRID = replace(
    SMALL,
    layers=4,
    gated_attention=True,
    linear_layers=3,
    linear_key_heads=2,
    linear_value_heads=4,
    linear_head_dim=3,
)
WORK = Workload(
    groups=6,
    rollouts=8,
    initial_frames=4,
    initial_tokens=50,
    initial_image_tokens=40,
    group_initial_image_tokens=40,
    call_frames=2,
    call_tokens=25,
    call_image_tokens=20,
    max_calls=3,
    allowed_calls=4,
)


def test_memory_of_the_actor_by_hand() -> None:
    assert layer_parameters(SMALL) == 8 * (16 + 8 + 48)  # q, k and v; o; gate, up and down
    assert text_saved_bytes(SMALL, 10) == 2 * 10 * 2 * 8
    assert text_layer_bytes(SMALL, 10) == 10 * 4 * (32 + 16 + 48)
    assert text_layer_bytes(QWEN3, 10) == 10 * (4 * (32 + 16 + 48) + 6 * (8 + 4))
    pixels = 10 * 2352 * 4  # twice in time, in bf16
    assert vision_saved_bytes(SMALL, 10, frozen=True) == pixels
    assert vision_saved_bytes(SMALL, 10, frozen=False) == pixels + 2 * 40 * (1 + 3) * 4
    assert vision_saved_bytes(QWEN3, 10, frozen=False) == pixels + 2 * 40 * (1 + 3 * 4) * 4
    assert vision_layer_bytes(SMALL, 10) == 2 * 40 * (14 * 4 + 6 * 8)
    assert vision_layer_bytes(QWEN3, 10) == 2 * 40 * (14 * 4 + 3 * 8)
    assert logits_bytes(SMALL, 10, RunOptions()) == 2 * 2 * 10 * 10
    assert logits_bytes(SMALL, 10, RunOptions(entropy=True)) == 4 * 2 * 10 * 10
    head, hidden = 2 * 10 * 8, 4 * 10 * 8
    assert logits_bytes(SMALL, 10, RunOptions(fused_head=True)) == 20 * 10 * 10 + 2 * head + hidden
    adapter = RunOptions(fused_head=True, entropy=True, lora_rank=4)
    assert logits_bytes(SMALL, 10, adapter) == 28 * 10 * 10 + head + hidden
    long = [logits_bytes(SMALL, tokens, RunOptions(fused_head=True)) for tokens in (512, 1024)]
    assert long[1] - long[0] == 512 * 4 * 8, "pieces of 512 tokens"
    assert processing_bytes(SMALL, 10) == 2 * 2 * 10 * SMALL.feature_bytes_per_image_token  # two tensors in float32
    few = replace(WORK, initial_image_tokens=1, call_image_tokens=0)
    two, four = (actor_memory(SMALL, RunOptions(ulysses=size), few, 8, 1000) for size in (2, 4))
    assert two.inside == 2 * four.inside == text_layer_bytes(SMALL, 2 * 1000 / 2), "more than the logits, gone by then"
    assert two.weights == four.weights == 500
    frozen = actor_memory(SMALL, RunOptions(freeze_vision=True), WORK, 8, 1000)
    assert (frozen.gradients, frozen.optimizer) == (400, 800)


def test_layers_with_experts_and_with_linear_attention_by_hand() -> None:
    assert layer_parameters(MIXTURE) == 8 * (16 + 8) + 4 * 8 * (3 * 6 + 1)  # attention; experts and their router
    assert num_values(adapter_tensors(MIXTURE, 2)) == 2 * 2 * (2 * (8 + 8) + 2 * (8 + 4)), "none on experts"
    shared = replace(MIXTURE, intermediate=5)
    assert layer_parameters(shared) - layer_parameters(MIXTURE) == 3 * 8 * 5 + 8
    assert text_layer_bytes(MIXTURE, 10) == 10 * 4 * (8 * (4 + 2 * 2) + 16 + 3 * 2 * 6)

    linear = 8 * (2 * 6 + 12) + 8 * 12 + 2 * 8 * 4 + 12 * 8  # queries, keys and values; gate; gates of heads; output
    assert layer_parameters(HYBRID) == linear + 3 * 8 * 16
    softmax = (8 + 16) + 2 * (8 + 4) + (8 + 8)
    per_map = (8 + 24) + (8 + 12) + 2 * (8 + 4) + (12 + 8)
    assert num_values(adapter_tensors(HYBRID, 2)) == 2 * (softmax + 3 * per_map + 4 * 3 * (8 + 16))
    options, gpu = RunOptions(prompt_length=4000, response_length=6000), find_gpu("H100")
    engine = engine_memory(HYBRID, options, gpu)
    state = 4 * 3 * 4 * 3 * 3  # in float32, of 3 layers with 4 heads of 3 x 3
    assert engine.longest_rollouts == engine.kv_cache / (10_000 * 2 * 2 * 2 * 2 + state), "one layer has a cache"


def test_memory_of_the_engine_by_hand() -> None:
    gpu, options = find_gpu("H100"), RunOptions(utilization=0.5, prompt_length=4000, response_length=6000)
    engine = engine_memory(find_model("qwen2.5-vl-7b"), options, gpu)
    assert engine.weights + engine.kv_cache + ENGINE_OVERHEAD_BYTES == 0.5 * gpu.memory_bytes
    assert engine.longest_rollouts == engine.kv_cache / (10_000 * 57_344)  # 2 x 28 layers x 4 heads x 128 x 2 bytes
    eight = engine_memory(find_model("qwen2.5-vl-7b"), replace(options, tp=8), gpu)
    assert eight.longest_rollouts == eight.kv_cache / (10_000 * 57_344 / 4), "heads are copied"


def test_images_of_a_step_by_hand() -> None:
    assert WORK.group_image_tokens == 40 + 8 * 3 * 20
    assert replace(WORK, group_initial_image_tokens=8 * 30).group_image_tokens == 8 * (30 + 3 * 20)
    assert queue_image_bytes(WORK, SMALL) == 6 * WORK.group_image_tokens * 2352


def test_a_processor_cache_holds_whole_groups_and_a_tenth_more() -> None:
    large = replace(WORK, call_image_tokens=100_000, group_initial_image_tokens=40_000)
    group = (40_000 + 8 * 3 * 100_000) * 9408
    gibs = {servers: mm_cache_gb(SMALL, RunOptions(tp=2), large, 2 * servers) for servers in (1, 4, 12)}
    assert gibs == {servers: math.ceil(1.1 * n * group / 2**30) for servers, n in {1: 6, 4: 2, 12: 1}.items()}
    assert mm_cache_gb(SMALL, RunOptions(), WORK, 8) == 4, "vLLM's default"


def test_bytes_of_an_image_token() -> None:
    sizes = {name: find_model(name) for name in known_models()}
    assert sizes["qwen2.5-vl-7b"].feature_bytes_per_image_token == 9408
    assert sizes["qwen3-vl-8b"].feature_bytes_per_image_token == 12_288


def test_a_config_of_several_rollouts_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`vvt estimate --n 100000` would ask it as often."""
    method = get_method("longvt")
    options = replace(recipe_options(method), rollouts=100_000)
    tokens = estimated_tokens(options.envelope(28))
    plan = Mock(wraps=method.plan_initial_frames)
    monkeypatch.setattr(type(method), "plan_initial_frames", plan)
    work = plan_workload(method, HOUR, tokens, options)
    assert plan.call_count == 1 and work.rollouts == 100_000
    assert work.group_initial_image_tokens == work.initial_image_tokens
    ladder = plan_workload(get_method("framemind"), HOUR, tokens, replace(options, rollouts=4))
    assert ladder.initial_image_tokens < ladder.group_initial_image_tokens < 4 * ladder.initial_image_tokens


@pytest.mark.parametrize("name", known_models())
def test_published_models_are_counted_and_not_guessed(name: str) -> None:
    entry = known_models()[name]
    assert list_tensors(entry["config"]) == (entry["tensors"], entry["vision_tensors"])
    assert entry["source"].startswith("https://huggingface.co/Qwen/")


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match=r"'qwen9'.*qwen2\.5-vl-3b, qwen2\.5-vl-7b, qwen3-vl-8b"):
        find_model("qwen9")
    with pytest.raises(UsageError, match=r"'tpu'.*h100"):
        find_gpu("tpu")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="not that of a Qwen-VL model"):
        find_model(str(tmp_path))


def with_adapter(plain: Any, rank: int) -> Any:
    """As the recipes have verl make it."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(plain, LoraConfig(r=rank, target_modules="all-linear", exclude_modules=".*visual.*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", known_models())
def test_parameters_of_an_adapter_are_those_that_peft_makes(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    config = json.loads(json.dumps(known_models()[name]["config"]))
    with torch.device("meta"):
        plain = AutoModelForImageTextToText.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
        adapted = with_adapter(plain, 8)
    trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    assert num_values(adapter_tensors(find_model(name), 8)) == trained


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_of_a_step_of_the_tiny_model(family: Family, rank: int) -> None:
    """Weights, gradients and moments that AdamW leaves after a step, of all weights and of an adapter."""
    import torch
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(base_model_dir(family), dtype=torch.float32)
    if rank:
        model = with_adapter(model, rank)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    states = [state for of_one in optimizer.state.values() for state in of_one.values() if state.dim()]
    planned = actor_memory(find_model(str(base_model_dir(family))), RunOptions(lora_rank=rank), WORK, 1, 1000)
    assert planned.weights == sum(parameter.nbytes for parameter in model.parameters())
    assert planned.gradients == sum(parameter.grad.nbytes for parameter in trained)
    assert planned.optimizer == sum(state.nbytes for state in states)


@pytest.mark.parametrize(("lora_rank", "num_bytes"), [(0, 2), (4, 0)])
def test_a_reference_is_in_main_memory_in_two_bytes(lora_rank: int, num_bytes: int) -> None:
    """verl's FSDP2 offloads what is never trained. With an adapter, the actor without it is the reference."""
    options = RunOptions(lora_rank=lora_rank)
    with_kl, without = (
        host_memory(SMALL, replace(options, reference=reference), WORK, Cluster(find_gpu("h100"), 8, 8)).total
        for reference in (True, False)
    )
    assert with_kl - without == 8 * (2 * blocks(5 * 10 * num_bytes) + blocks(3 * 10 * num_bytes))


def blocks(num_bytes: int) -> int:
    """The power of two that PyTorch pins for so many bytes."""
    return 0 if num_bytes == 0 else next(2**power for power in range(64) if 2**power >= num_bytes)


def test_pinned_memory_is_a_power_of_two_for_each_shard() -> None:
    """Two tensors of 40 x 10 and one of 20 x 10 on 8 GPUs: shards of 5 and 3 rows of 10 values."""
    once = 2 * blocks(5 * 10 * 4) + blocks(3 * 10 * 4)
    assert once == 2 * 256 + 128
    assert pinned_bytes(SMALL, RunOptions(), 8) == 3 * once, "weights and two moments"
    assert pinned_bytes(SMALL, RunOptions(freeze_vision=True), 8) == once + 2 * (2 * 256)
    assert pinned_bytes(SMALL, RunOptions(offload=False, reference=True), 8) == once // 2
    rows_of_one = replace(SMALL, tensors=(Tensors(3, 4, 10),), vision_tensors=())
    assert pinned_bytes(rows_of_one, RunOptions(), 8) == 3 * 3 * 64, "the GPUs that have a row"
    adapter = adapter_tensors(SMALL, 4)
    with_adapter = sum(tensors.pinned_bytes(8, 4) for tensors in adapter)
    assert pinned_bytes(SMALL, RunOptions(lora_rank=4), 8) == once + 3 * with_adapter


@pytest.mark.parametrize(("num_gpus", "gigabytes"), [(4, 15.69), (8, 7.845), (64, 0.981)])
def test_pinned_weights_of_a_model_of_7b(num_gpus: int, gigabytes: float) -> None:
    """1.89 times the bytes of the weights."""
    model = find_model("qwen2.5-vl-7b")
    pinned = sum(tensors.pinned_bytes(num_gpus, 4) for tensors in (*model.tensors, *model.vision_tensors))
    assert pinned / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    assert 1.89 < pinned / (4 * model.num_parameters / num_gpus) < 1.90


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_in_the_queue(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a group of three stores, initial frames once, is what the formula says."""
    stored_images = pytest.importorskip("verl_video_tools.verl_plugin.images")
    blocks: list[int] = []
    monkeypatch.setattr(
        stored_images.queue.tq, "kv_put", lambda *, fields, **_: blocks.append(fields["pixels"].numel())
    )
    shape = find_model(str(base_model_dir(family)))
    side = 2 * shape.factor
    images = [
        ImagePart(FrameRecord(index, float(index), side, side), np.zeros((side, side, 3), np.uint8))
        for index in range(4)
    ]
    stored_images.put_block("a_initial", images, shared=True)
    for rollout in range(3):
        stored_images.put_block(f"a_{rollout}-called", images[:2], shared=False)
    work = replace(WORK, group_initial_image_tokens=4 * 4, call_image_tokens=2 * 4, max_calls=1, groups=1, rollouts=3)
    assert sum(blocks) == queue_image_bytes(work, shape)


@pytest.mark.parametrize("method", ["framethinker", "videozoomer", "longvt", "videobrain"])
def test_estimated_text_has_the_right_order(method: str) -> None:
    """No tokenizer is compared with here: labels of frames and the prompt, roughly."""
    options = recipe_options(get_method(method))
    work = plan_workload(get_method(method), HOUR, estimated_tokens(options.envelope(28)), options)
    text = work.initial_tokens - work.initial_image_tokens
    assert 3 * work.initial_frames < text < 20 * work.initial_frames + 3000
