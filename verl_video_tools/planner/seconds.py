"""Seconds of the stages of one synchronous step, modelled from work and stated efficiencies. No stages overlap."""

from __future__ import annotations

import math

from verl_video_tools.planner.constants import GPU, constant
from verl_video_tools.planner.gpu_memory import engine_memory, kv_bytes_per_token
from verl_video_tools.planner.host_memory import groups_per_server, rollouts_per_server
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.planner.workload import Workload


def text_forward_flops(model: ModelShape, tokens: float, context: float = 0) -> float:
    """Of the language model: two per parameter and token, and causal attention.

    Args:
        context: tokens that stand before these and are cached.
    """
    attention = 4 * model.layers * model.heads * model.head_dim * tokens * (context + tokens / 2)
    return 2 * model.num_text_parameters * tokens + attention


def vision_forward_flops(model: ModelShape, image_tokens: float) -> float:
    """Of the vision tower: two per parameter and patch. Its attention within windows and images is left out."""
    return 2 * model.num_vision_parameters * model.merge**2 * image_tokens


def prefill_flops(model: ModelShape, workload: Workload, groups: int, rollouts: int) -> float:
    """Of one server: initial frames once per group, what follows once per rollout; everything earlier is cached."""
    copies = groups if workload.is_shared else rollouts
    initial = text_forward_flops(model, workload.mean_initial_tokens) + vision_forward_flops(
        model, workload.mean_initial_image_tokens
    )
    call = text_forward_flops(model, workload.call_tokens, workload.mean_initial_tokens)
    call += vision_forward_flops(model, workload.call_image_tokens)
    return copies * initial + rollouts * workload.mean_calls * call


def generation_seconds(model: ModelShape, options: RunOptions, workload: Workload, gpu: GPU, rollouts: int) -> float:
    """Bound by memory: each step of decoding reads the weights and the cache of all rollouts that run together."""
    engine = engine_memory(model, options, gpu, max(1, round(workload.mean_tokens)))
    together = max(1.0, min(rollouts, engine.longest_rollouts))
    weights = model.num_text_parameters * constant("inference_bytes") / options.tp
    read = weights + together * workload.mean_tokens * kv_bytes_per_token(model, options.tp)
    bandwidth = gpu.memory_bytes_per_second * constant("bandwidth_efficiency")
    step = constant("decode_floor_seconds") + read / bandwidth
    written = (workload.mean_calls + 1) * workload.turn_tokens
    return constant("straggler_factor") * math.ceil(rollouts / together) * written * step


def train_flops(model: ModelShape, workload: Workload, options: RunOptions, passes: float) -> float:
    """Of a step's rollouts over all GPUs.

    Args:
        passes: forward passes that the work is worth: 1 for log-probabilities, 4 for an update with checkpointing.
    """
    text = text_forward_flops(model, workload.mean_tokens)
    vision = vision_forward_flops(model, workload.mean_image_tokens)
    vision *= 1 if options.freeze_vision else passes
    return workload.groups * workload.rollouts * (passes * text + options.ulysses * vision)


def decoding_seconds(workload: Workload, frame_pixels: int) -> float:
    """Core-seconds of agent loop workers in a step.

    Args:
        frame_pixels: width x height of the videos.
    """
    called = workload.rollouts * workload.mean_calls * workload.call_frames
    frames = workload.groups * (workload.group_frames + called)
    return frames * constant("decode_frame_seconds") * frame_pixels / (1920 * 1080)


def front_end_seconds(model: ModelShape, workload: Workload, groups: int, rollouts: int) -> float:
    """Of one inference server, which works on these groups and rollouts of them, for every image once."""
    copies = groups if workload.is_shared else rollouts
    image_tokens = copies * workload.mean_initial_image_tokens
    image_tokens += rollouts * workload.mean_calls * workload.call_image_tokens
    return image_tokens * model.stored_bytes_per_image_token * constant("front_end_seconds")


def stage_seconds(
    model: ModelShape,
    options: RunOptions,
    workload: Workload,
    gpu: GPU,
    *,
    num_gpus: int,
    num_cores: int,
    frame_pixels: int,
) -> dict[str, float]:
    """Seconds of each stage.

    Args:
        num_cores: of all nodes.
        frame_pixels: width x height of the videos.
    """
    servers = max(1, num_gpus // options.tp)
    groups = groups_per_server(workload.groups, servers)
    rollouts = rollouts_per_server(workload.groups, workload.rollouts, servers)
    peak = num_gpus * gpu.bf16_flops
    forward = train_flops(model, workload, options, 1) / (peak * constant("forward_efficiency"))
    prefill = prefill_flops(model, workload, groups, rollouts)
    weights = constant("weight_bytes") * model.num_parameters
    return {
        "decoding": decoding_seconds(workload, frame_pixels) / num_cores,
        "front end": front_end_seconds(model, workload, groups, rollouts),
        "prefill": prefill / (options.tp * gpu.bf16_flops * constant("prefill_efficiency")),
        "generation": generation_seconds(model, options, workload, gpu, rollouts),
        "old log-probabilities": forward,
        "reference log-probabilities": forward if options.reference else 0.0,
        "update": train_flops(model, workload, options, 4) / (peak * constant("train_efficiency")),
        "weight sync": constant("sync_fixed_seconds") + weights / constant("sync_bytes_per_second"),
    }
