"""Numbers that verl divides, and refuses when workers are up or in the first step."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.launch.checks.planned import PlannedRun
from verl_video_tools.launch.checks.report import Check, Status

ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"


def check_sizes(run: PlannedRun) -> Iterator[Check]:
    """Whether batches, mini-batches and micro-batches can be dealt to the training ranks."""
    trainer = run.config.trainer
    num_ranks = int(trainer.nnodes) * int(trainer.n_gpus_per_node)
    problems = _grpo_problems if run.program == "grpo" else _sft_problems
    for detail, fix in problems(run.config, num_ranks):  # what follows the first one depends on it
        yield Check("configuration", "sizes", Status.FAILED, detail=detail, fix=fix)
        return
    yield Check("configuration", "sizes", Status.OK, f"training ranks: {num_ranks}")


def _grpo_problems(config: DictConfig, num_ranks: int) -> Iterator[tuple[str, str]]:
    """What is wrong, and the option to set."""
    actor, rollout, ref = (OmegaConf.select(config, section) for section in (ACTOR, ROLLOUT, REF))
    shards = int(actor.ulysses_sequence_parallel_size)
    if num_ranks % shards:
        detail = f"{num_ranks} GPUs cannot be divided into groups of {shards} that share a sequence"
        yield detail, f"{ACTOR}.ulysses_sequence_parallel_size={_divisor(num_ranks, shards)}"
        return
    if config.trainer.get("val_only"):
        return  # no update
    ranks, group = num_ranks // shards, int(rollout.n)
    mini_batch = int(actor.ppo_mini_batch_size)
    if mini_batch * group % ranks:
        step = ranks // gcd(ranks, group)
        detail = f"a mini-batch of {mini_batch} x {group} rollouts cannot be dealt to {ranks} training ranks"
        yield detail, f"{ACTOR}.ppo_mini_batch_size={-(-mini_batch // step) * step}"
        return
    batch = mini_batch if _is_separate(config) else int(config.data.train_batch_size)
    multiple = lcm(ranks, mini_batch * group)  # verl fills a batch up to a multiple of this
    of_rank = -(-batch * group // multiple) * multiple // ranks
    if of_rank < 2:
        detail = f"{batch} x {group} rollouts for {ranks} training ranks: verl cannot update on fewer than two of each"
        yield detail, f"data.train_batch_size={-(-2 * ranks // group)}"
    of_mini_batch = mini_batch * group // ranks
    micro_batches = [(of_mini_batch, f"{ACTOR}.ppo_micro_batch_size_per_gpu", actor.use_dynamic_bsz)]
    has_reference = bool(actor.use_kl_loss or config.algorithm.use_kl_in_reward)
    model = config.actor_rollout_ref.model
    is_adapter_off = has_reference and bool(model.get("lora_rank") or model.get("lora_adapter_path"))  # the actor's own
    if is_adapter_off or not OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode"):
        micro_batches.append(
            (of_rank, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", rollout.log_prob_use_dynamic_bsz)
        )
    if has_reference and not is_adapter_off:
        micro_batches.append((of_rank, f"{REF}.log_prob_micro_batch_size_per_gpu", ref.log_prob_use_dynamic_bsz))
    for number, option, is_dynamic in micro_batches:
        size = OmegaConf.select(config, option)
        if not is_dynamic and size and number % int(size):
            detail = f"{number} rollouts of a training rank cannot be divided into micro-batches of {size}"
            yield detail, f"{option}={_divisor(number, int(size))}"


def _sft_problems(config: DictConfig, num_ranks: int) -> Iterator[tuple[str, str]]:
    shards = int(config.engine.ulysses_sequence_parallel_size)
    if num_ranks % shards:
        detail = f"{num_ranks} GPUs cannot be divided into groups of {shards} that share a sequence"
        yield detail, f"engine.ulysses_sequence_parallel_size={_divisor(num_ranks, shards)}"
        return
    ranks, batch = num_ranks // shards, int(config.data.train_batch_size)
    if batch < ranks:  # verl leaves out what does not fill all ranks
        yield f"a batch of {batch} rows leaves none to some of {ranks} training ranks", f"data.train_batch_size={ranks}"
        return
    size = config.data.micro_batch_size_per_gpu
    if not config.data.use_dynamic_bsz and size and batch // ranks % int(size):
        detail = f"{batch // ranks} rows of a training rank cannot be divided into micro-batches of {size}"
        yield detail, f"data.micro_batch_size_per_gpu={_divisor(batch // ranks, int(size))}"


def _is_separate(config: DictConfig) -> bool:
    """Whether the engine has GPUs of its own, and each update takes a mini-batch."""
    return str(OmegaConf.select(config, "trainer.v1.trainer_mode")).endswith("separate_async")


def _divisor(number: int, wanted: int) -> int:
    """The largest divisor of `number` that is no larger than `wanted`."""
    return max(divisor for divisor in range(1, wanted + 1) if number % divisor == 0)
