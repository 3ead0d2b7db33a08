"""What the processes of a run find in their environment, and how a run joins Ray."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from verl_video_tools.config import VLLM_CPU_ENVIRONMENT
from verl_video_tools.launch.variables import quoted

CPU = {"VERL_PLATFORM": "cpu", "RAY_DEDUP_LOGS": "1", **VLLM_CPU_ENVIRONMENT}
"""Variables that a run without a GPU needs before Python starts (docs/cpu.md says why each)."""
_FORWARDED = re.compile(
    r"((VVT|VERL|TQ|VLLM|NCCL|GLOO|HF|WANDB|MLFLOW|SWANLAB|TENSORBOARD|MALLOC)_.*"
    r"|OMP_NUM_THREADS|PYTHONPATH|TORCHDYNAMO_DISABLE)"
)
_KEPT_HERE = ("KEY", "TOKEN", "SECRET", "PASSWORD", "HOST_IP")


def run_environment(
    given: Mapping[str, str], program: str, device: str, folder: Path, is_verbose: bool
) -> dict[str, str]:
    """The environment of a run in `folder`: `given`, and what the run needs where that says nothing else."""
    needed = dict(CPU) if device == "cpu" else {}
    if given.get("RAY_ADDRESS"):  # some variables also stand in a submitted job's environment
        needed["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"
    if program == "grpo":
        # How verl sends a finished rollout to its reward worker: by default it pickles on the event loop of the agent
        # loop worker, 3 to 20 ms for a rollout of LongVT; so it takes 0.1 ms. The same bits arrive.
        needed["VERL_DATAPROTO_SERIALIZATION_METHOD"] = "numpy"
    elif device == "cpu":
        needed["OMP_WAIT_POLICY"] = "PASSIVE"  # waiting threads leave the cores to whatever else runs
    # A file for each start, since verl's logger empties its own. `vvt report` reads them all.
    needed["VERL_FILE_LOGGER_PATH"] = str(folder / f"metrics_{datetime.now():%Y%m%d_%H%M%S}.jsonl")
    # Trackers would write into the folder of whichever process logs, on a cluster a temporary one.
    needed["TENSORBOARD_DIR"] = str(folder / "tensorboard")
    needed["WANDB_DIR"] = str(folder)
    needed["SWANLAB_LOG_DIR"] = str(folder / "swanlog")
    if not is_verbose:
        needed["VVT_MARK_WARNINGS"] = "1"  # the console shows them beside the steps
    programs = Path(sys.executable).parent  # Ray and torchrun start their workers by name
    return needed | dict(given) | {"PATH": f"{programs}{os.pathsep}{given.get('PATH', '')}"}


def ray_options(device: str, environment: Mapping[str, str]) -> list[str]:
    """Options with which verl joins the cluster of RAY_ADDRESS and hands its workers the variables of this run."""
    # Workers inherit the variables of their node's `ray start`, not of this process. Keys and tokens stay out, since
    # verl prints its configuration, and so do addresses of this very node.
    forwarded = [name for name in sorted(environment) if _FORWARDED.fullmatch(name) and not name.endswith(_KEPT_HERE)]
    options = [f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}={quoted(environment[name])}" for name in forwarded]
    if device == "cpu":  # nodes have declared theirs
        options += [
            "~ray_kwargs.ray_init.address",
            "~ray_kwargs.ray_init.num_gpus",
            "ray_kwargs.ray_init.num_cpus=null",
        ]
    return options
