"""Whether the limits of a GRPO run agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.check import Check, Status
from verl_video_tools.verl_plugin.settings import tokens_missing


def check_limits(config: DictConfig) -> Iterator[Check]:
    """Lengths that the inference engine must hold; else the run is refused, here or once the model is loaded."""
    rollout = config.actor_rollout_ref.rollout
    prompt, response = int(rollout.prompt_length), int(rollout.response_length)
    longest = rollout.max_model_len
    group, name = "configuration", "lengths"
    engine = "as the model" if longest is None else f"{longest:,}"
    found = f"prompt {prompt:,} + response {response:,} tokens, engine {engine}"
    if tokens_missing(rollout):
        detail = "the engine is shorter than a rollout may be"
        fix = f"actor_rollout_ref.rollout.max_model_len={prompt + response}, or smaller lengths"
        yield Check(group, name, Status.FAILED, found, detail, fix)
        return
    batched = int(rollout.max_num_batched_tokens)
    if not rollout.enable_chunked_prefill and batched < (longest or prompt + response):
        detail = f"without chunked prefill vLLM takes no sequence longer than max_num_batched_tokens={batched:,}"
        fix = f"actor_rollout_ref.rollout.max_num_batched_tokens={longest or prompt + response}"
        yield Check(group, name, Status.FAILED, found, detail, fix)
        return
    yield Check(group, name, Status.OK, found)


def check_group(config: DictConfig) -> Iterator[Check]:
    """Whether the rollouts of a question can differ. GRPO learns from nothing else."""
    rollout = config.actor_rollout_ref.rollout
    if str(config.algorithm.adv_estimator) != "grpo":
        return
    number, temperature = int(rollout.n), float(rollout.temperature)
    group, name, found = "configuration", "group", f"{number} per question, temperature {temperature:g}"
    if number < 2:
        detail = "GRPO compares the rollouts of a question, and one alone has no advantage: nothing is learnt"
        yield Check(
            group, name, Status.FAILED, found, detail, "actor_rollout_ref.rollout.n=8, or another number above 1"
        )
    elif temperature <= 0:
        detail = "without sampling all rollouts of a question are the same, and none has an advantage"
        yield Check(group, name, Status.FAILED, found, detail, "actor_rollout_ref.rollout.temperature=1.0")
    else:
        yield Check(group, name, Status.OK, found)


def check_pixels(config: DictConfig) -> Iterator[Check]:
    """Bounds that are swapped; the processor's own messages do not say so."""
    options = OmegaConf.select(config, "data.mm_processor_kwargs") or {}
    smallest, largest = options.get("min_pixels"), options.get("max_pixels")
    if isinstance(smallest, int) and isinstance(largest, int):
        found = f"min_pixels={smallest}, max_pixels={largest}"
        if smallest > largest:
            fix = f"swap them: min_pixels={largest}, max_pixels={smallest}"
            yield Check("configuration", "pixels", Status.FAILED, found, "the least is above the most", fix)
        else:
            yield Check("configuration", "pixels", Status.OK, found)


def with_ordered_pixels(data: DictConfig) -> DictConfig:
    """The section `data` with bounds that are not swapped, so that everything else can be checked."""
    options = data.get("mm_processor_kwargs") or {}
    smallest, largest = options.get("min_pixels"), options.get("max_pixels")
    if not (isinstance(smallest, int) and isinstance(largest, int) and smallest > largest):
        return data
    swapped = {"mm_processor_kwargs": {"min_pixels": largest, "max_pixels": smallest}}
    return cast(DictConfig, OmegaConf.unsafe_merge(OmegaConf.create(OmegaConf.to_container(data)), swapped))
