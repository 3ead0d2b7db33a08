"""Memory and checkpoints of the run, as `vvt plan` models them, with the options that the run really has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.check import Check, Status
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.pages import page
from verl_video_tools.dry_run.first_frames import Prompt
from verl_video_tools.planner.composed import run_options
from verl_video_tools.planner.constants import GB, GPU, GPUS, constant, find_gpu
from verl_video_tools.planner.gpu_memory import held_parameters, trained_parameters
from verl_video_tools.planner.host_memory import checkpoint_bytes
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.plan import Cluster, Plan, make_plan
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.rollout.tokens import ModelTokens

CPU_FREE_BYTES = 8 * GB
"""Free memory that a run of the tiny model takes on a machine without a GPU."""
DEFAULT_GPU = "h100"
_SMI = "nvidia-smi"


def checkpoint_sizes(shape: ModelShape, options: RunOptions, contents: list[str]) -> tuple[float, float]:
    """Bytes of one checkpoint, all shards, and of the model that is exported at the end.

    Args:
        contents: `save_contents` of the checkpoint.
    """
    size = checkpoint_bytes(held_parameters(shape, options), trained_parameters(shape, options))
    export = constant("weight_bytes") * shape.num_parameters
    return size + export * ("hf_model" in contents), export


def check_host(device: str) -> Iterator[Check]:
    """Free memory of a machine without a GPU, on which no plan is made."""
    if device == "cpu":
        free = psutil.virtual_memory().available
        found = f"{free / GB:.1f} GB free"
        if free < CPU_FREE_BYTES:
            detail = f"a run of the tiny model takes about {CPU_FREE_BYTES / GB:.0f} GB"
            yield Check("memory", "main memory", Status.WARNING, found, detail, "end other programs")
        else:
            yield Check("memory", "main memory", Status.OK, found)


def check_plan(
    config: DictConfig,
    prompt: Prompt,
    tokens: ModelTokens,
    shape: ModelShape,
    gpu_name: str | None,
    gpus: Sequence[str],
    num_steps: int | None,
) -> Iterator[Check]:
    """Memory of GPUs and nodes, and time, for videos like that of the row with the largest prompt.

    Args:
        prompt: of that row.
        num_steps: of the run; None where that is not known.
        gpu_name: kind of GPU, as `vvt plan --gpu` takes it; default: the one that is here, or `DEFAULT_GPU`.
        gpus: those that are here, as `list_gpus` names them.
    """
    assert prompt.info is not None
    try:
        cluster, assumed = _cluster(config, gpu_name, gpus)
        plan = make_plan(prompt.method, prompt.info, shape, tokens, run_options(config, tokens.envelope), cluster)
    except UsageError as error:
        yield Check(
            "memory", "plan", Status.FAILED, detail=str(error), fix="correct the options, or see `vvt plan --help`"
        )
        return
    yield from _plan_checks(plan, assumed, num_steps)


def _plan_checks(plan: Plan, assumed: str, num_steps: int | None) -> Iterator[Check]:
    cluster, host = plan.cluster, plan.host
    gpu = (
        f"{max(plan.actor.total, plan.engine.budget) / GB:.0f} GB of {cluster.gpu.memory_bytes / GB:.0f} "
        f"({cluster.gpu.name}{assumed})"
    )
    main = f"{host.total / GB:.0f} GB a node of {cluster.host_bytes / GB:.0f}{assumed}"
    fix = f"vvt plan shows what takes most and which options follow ({page('planning')})"
    if plan.reasons:
        yield Check("memory", "plan", Status.FAILED, f"GPU {gpu}; {main}", "; ".join(plan.reasons), fix)
        return
    seconds = f"about {plan.step_seconds:,.0f} s a step"
    if num_steps is not None:
        seconds += f", {plan.step_seconds * num_steps / 3600:,.1f} h for {num_steps:,} steps"
    if cluster.gpu.source == _SMI:
        seconds = "how long a step takes is not known of this GPU"
    yield Check("memory", "GPU", Status.OK, gpu, f"modelled; {seconds}")
    yield Check("memory", "main memory", Status.OK, main, "modelled")
    for warning in plan.warnings:
        yield Check("memory", "plan", Status.WARNING, detail=warning)


def _cluster(config: DictConfig, gpu_name: str | None, gpus: Sequence[str]) -> tuple[Cluster, str]:
    """The run's nodes, and a note where they are assumed, since this machine is not one of them."""
    per_node, nodes = int(config.trainer.n_gpus_per_node), int(config.trainer.nnodes)
    here = [] if gpu_name else gpus
    gpu = gpu_of(here[0]) if here else find_gpu(gpu_name or DEFAULT_GPU)
    if not here:
        return Cluster(
            gpu, per_node * nodes, per_node, constant("host_bytes"), int(constant("host_cores"))
        ), ", assumed"
    cores = psutil.cpu_count() or 1
    return Cluster(gpu, per_node * nodes, per_node, float(psutil.virtual_memory().total), cores, _shm_bytes()), ""


def gpu_of(line: str) -> GPU:
    """The kind of a GPU by what nvidia-smi says of it: `NAME, 81559 MiB`. Of an unknown one only the memory counts.

    Raises:
        UsageError: the memory is not in the text.
    """
    name, _, memory = line.rpartition(",")
    number = memory.strip().split(" ")[0]
    if not number.isdecimal():
        raise UsageError(f"nvidia-smi says {line!r}; name the kind of GPU with DRY_RUN_GPU: {', '.join(GPUS)}")
    words = name.lower().replace("-", " ").split()
    for kind in GPUS.values():
        named = [word for word in kind.name.split("-") if not word.endswith("gb")]
        if set(named) <= set(words) and abs(int(number) * 2**20 / kind.memory_bytes - 1) < 0.1:
            return kind
    return replace(GPUS[DEFAULT_GPU], name=name.strip() or line, memory_bytes=float(int(number) * 2**20), source=_SMI)


def _shm_bytes() -> float | None:
    path = Path("/dev/shm")
    return float(psutil.disk_usage(str(path)).total) if path.is_dir() else None


def num_checkpoints(config: DictConfig, num_steps: int | None) -> int:
    """Checkpoints that are on disk at the same time.

    Args:
        num_steps: of the run; None where nobody knows.
    """
    trainer = config.trainer
    kept = OmegaConf.select(trainer, "max_actor_ckpt_to_keep") or OmegaConf.select(trainer, "max_ckpt_to_keep")
    # With one to keep, verl removes the one before only after the new one is written.
    most = int(kept) + (int(kept) == 1) if kept else None
    if num_steps is None:
        return most or 1
    saved = -(-num_steps // int(trainer.save_freq)) if trainer.save_freq > 0 else 1
    return saved if most is None else min(saved, most)
