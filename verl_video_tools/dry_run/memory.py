"""Memory of the run: the estimate of `vvt plan` with the options that the run really has. It is never a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from omegaconf import DictConfig

from verl_video_tools.core.check import Check, Status
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.pages import page
from verl_video_tools.dry_run.first_frames import Prompt
from verl_video_tools.planner.memory import GB, GPU, GPUS, Cluster, find_gpu
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.options import run_options
from verl_video_tools.planner.plan import make_plan
from verl_video_tools.rollout.tokens import ModelTokens

CPU_FREE_BYTES = 8 * GB
"""Free memory that a run of the tiny model takes on a machine without a GPU."""
DEFAULT_GPU = "h100"


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
) -> Iterator[Check]:
    """Memory of GPUs and nodes for videos like that of the row with the largest prompt.

    Numbers of GPUs that verl or vLLM refuses are a failure.

    Args:
        prompt: of that row.
        gpu_name: kind of GPU, as `vvt plan --gpu` takes it; default: the one that is here, or `DEFAULT_GPU`.
        gpus: those that are here, as `list_gpus` names them.
    """
    assert prompt.info is not None
    try:
        cluster, assumed = _cluster(config, gpu_name, gpus)
        plan = make_plan(prompt.method, prompt.info, shape, tokens, run_options(config, tokens.envelope), cluster)
    except UsageError as error:
        fix = "correct the options, or see `vvt plan --help`"
        yield Check("memory", "plan", Status.FAILED, detail=str(error), fix=fix)
        return
    gpu_bytes = max(plan.actor.total, plan.engine.budget)
    found = (
        f"{gpu_bytes / GB:.0f} GB of a GPU's {cluster.gpu.memory_bytes / GB:.0f} ({cluster.gpu.name}{assumed}), "
        f"{plan.host.total / GB:.0f} GB of a node's {cluster.host_bytes / GB:.0f}{assumed}"
    )
    status = Status.WARNING if plan.warnings else Status.OK
    fix = f"vvt plan shows the whole estimate ({page('planning')})" if plan.warnings else ""
    yield Check("memory", "plan", status, found, "; ".join(plan.warnings) or "an estimate", fix)


def _cluster(config: DictConfig, gpu_name: str | None, gpus: Sequence[str]) -> tuple[Cluster, str]:
    """The run's nodes, and a note where they are assumed, since this machine is not one of them."""
    per_node, nodes = int(config.trainer.n_gpus_per_node), int(config.trainer.nnodes)
    if gpu_name or not gpus:
        return Cluster(find_gpu(gpu_name or DEFAULT_GPU), per_node * nodes, per_node), ", assumed"
    memory, cores = float(psutil.virtual_memory().total), psutil.cpu_count() or 1
    return Cluster(gpu_of(gpus[0]), per_node * nodes, per_node, memory, cores, _shm_bytes()), ""


def gpu_of(line: str) -> GPU:
    """The GPU of a line of nvidia-smi: `NAME, 81559 MiB`.

    Raises:
        UsageError: the memory is not in the text.
    """
    name, _, memory = line.rpartition(",")
    number = memory.strip().split(" ")[0]
    if not number.isdecimal():
        raise UsageError(f"nvidia-smi says {line!r}; name the kind of GPU with DRY_RUN_GPU: {', '.join(GPUS)}")
    return GPU(name.strip(), float(int(number) * 2**20))


def _shm_bytes() -> float | None:
    path = Path("/dev/shm")
    return float(psutil.disk_usage(str(path)).total) if path.is_dir() else None
