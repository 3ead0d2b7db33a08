"""The environment of a run: variables that `vvt train` reads as options, and what the run's processes find.

All else is an option of verl's configuration.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from verl_video_tools.config import VLLM_CPU_ENVIRONMENT
from verl_video_tools.core.errors import UsageError

_OF_BOTH = {
    "TRAIN_FILES": "data.train_files",
    "VAL_FILES": "data.val_files",
    "NNODES": "trainer.nnodes",
    "NDEVICES_PER_NODE": "trainer.n_gpus_per_node",
    "PROJECT_NAME": "trainer.project_name",
    "EXPERIMENT_NAME": "trainer.experiment_name",
    "LOGGER": "trainer.logger",
}
OPTIONS = {
    "grpo": {
        "MODEL_PATH": "actor_rollout_ref.model.path",
        **_OF_BOTH,
        "JUDGE_BASE_URL": "video_tools.judge.base_url",
        "JUDGE_MODEL": "video_tools.judge.model",
    },
    "sft": {"MODEL_PATH": "model.path", **_OF_BOTH},
}
"""By the program that they configure, the option that a variable stands for."""
OTHERS = ("OUTPUT_DIR", "DEVICE", "RAY_ADDRESS", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "VERBOSE", "PYTHON")
LISTS = ("TRAIN_FILES", "VAL_FILES", "LOGGER", "JUDGE_BASE_URL")
"""Variables whose value may be a list, `[a,b]`."""
NAMES = (*OPTIONS["grpo"], *OTHERS)
_IN_RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable of a process that `ray job submit` started."""
FLAGS = ("SYNTHETIC", "SMOKE_TEST", "DRY_RUN", "SAVE_ON_SIGNAL")
"""Options of `vvt train`, and no variables."""


@dataclass(frozen=True)
class Variables:
    """What the environment says of a run."""

    values: Mapping[str, str]

    @property
    def output_dir(self) -> Path:
        """Absolute: workers of a Ray cluster run in other folders."""
        return Path(self.values.get("OUTPUT_DIR") or "outputs").absolute()

    @property
    def is_verbose(self) -> bool:
        return self.values.get("VERBOSE", "0") != "0"

    @property
    def ray_address(self) -> str | None:
        """Of a Ray cluster that runs; None: the run starts Ray on this machine."""
        address = self.values.get("RAY_ADDRESS") or "local"
        return None if address == "local" else address

    @property
    def node_rank(self) -> int:
        return int(self.values.get("NODE_RANK", "0"))

    def overrides(self, program: str) -> list[str]:
        """Those of verl's options that a variable gives."""
        options = OPTIONS[program].items()
        return [f"{option}={_as_option(name, self.values[name])}" for name, option in options if self.values.get(name)]


def read_variables(environment: Mapping[str, str]) -> Variables:
    """The variables of a run.

    Raises:
        UsageError: a variable is spelt almost like one of these, or has the name of a flag, and would have no effect;
            or the run is a job of Ray, and its output would be lost.
    """
    if _IN_RAY_JOB in environment and not os.path.isabs(environment.get("OUTPUT_DIR", "")):
        raise UsageError(
            "a job of Ray runs in a folder that may go away with it; set OUTPUT_DIR to an absolute path that every "
            "node sees, such as OUTPUT_DIR=/shared/outputs"
        )
    for name in sorted(set(environment) - set(NAMES)):
        near = get_close_matches(name, NAMES, n=1, cutoff=0.88) if name.isupper() else []
        advice = f"give --{name.lower().replace('_', '-')}" if name in FLAGS else f"set {near[0]}" if near else None
        if advice is not None:
            raise UsageError(f"the environment has {name}, which vvt train does not read; {advice}, and unset it")
    return Variables({name: environment[name] for name in NAMES if environment.get(name)})


def quoted(value: object) -> str:
    """A text as Hydra takes it, whatever characters it has."""
    # A backslash counts before a quotation mark alone, and the text's end is one.
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), str(value))
    return "'" + escaped.replace("${", "\\${") + "'"


def _as_option(name: str, value: str) -> str:
    if name in ("NNODES", "NDEVICES_PER_NODE") or (name in LISTS and value.startswith("[")):
        return value
    if name in ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES") and os.path.exists(value):
        value = os.path.abspath(value)  # what is not here may be a model's name
    return quoted(value)


# --------------------------------------------------------------------------------------------------------- of processes


CPU = {"VERL_PLATFORM": "cpu", "RAY_DEDUP_LOGS": "1", **VLLM_CPU_ENVIRONMENT}
"""Variables that a run without a GPU needs before Python starts (docs/cpu.md says why each)."""
_FORWARDED = re.compile(
    r"((VVT|VERL|TQ|VLLM|NCCL|GLOO|HF|WANDB|MLFLOW|SWANLAB|TENSORBOARD|MALLOC)_.*"
    r"|OMP_NUM_THREADS|PYTHONPATH|TORCHDYNAMO_DISABLE)"
)
_NOT_FORWARDED = ("KEY", "TOKEN", "SECRET", "PASSWORD", "HOST_IP")


def run_environment(
    values: Mapping[str, str], program: str, device: str, folder: Path, is_verbose: bool
) -> dict[str, str]:
    """The environment of a run in `folder`: `values`, and defaults of the variables that the run needs."""
    needed = dict(CPU) if device == "cpu" else {}
    if values.get("RAY_ADDRESS"):  # some variables also stand in a submitted job's environment
        needed["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"
    if program == "grpo":
        # How verl sends a finished rollout to its reward worker: by default it pickles on the event loop of the agent
        # loop worker, 3 to 20 ms for a rollout of LongVT; so it takes 0.1 ms. The same bits arrive.
        needed["VERL_DATAPROTO_SERIALIZATION_METHOD"] = "numpy"
    elif device == "cpu":
        needed["OMP_WAIT_POLICY"] = "PASSIVE"  # waiting threads leave the cores to whatever else runs
    # A file for each start, since verl's logger empties its own. `vvt report` reads them all.
    needed["VERL_FILE_LOGGER_PATH"] = str(folder / f"metrics_{datetime.now():%Y%m%d_%H%M%S}.jsonl")
    # Trackers write into the working folder of the process that logs, which is a temporary one on a cluster.
    needed["TENSORBOARD_DIR"] = str(folder / "tensorboard")
    needed["WANDB_DIR"] = str(folder)
    needed["SWANLAB_LOG_DIR"] = str(folder / "swanlog")
    if not is_verbose:
        needed["VVT_MARK_WARNINGS"] = "1"  # the console shows them beside the steps
    programs = Path(sys.executable).parent  # Ray and torchrun start their workers by name
    return needed | dict(values) | {"PATH": f"{programs}{os.pathsep}{values.get('PATH', '')}"}


def ray_options(device: str, environment: Mapping[str, str]) -> list[str]:
    """Options with which verl joins the cluster of RAY_ADDRESS and hands its workers the variables of this run."""
    # Workers inherit the variables of their node's `ray start`, not of this process. Keys and tokens stay out, since
    # verl prints its configuration, and so do addresses of this very node.
    forwarded = [
        name for name in sorted(environment) if _FORWARDED.fullmatch(name) and not name.endswith(_NOT_FORWARDED)
    ]
    options = [f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}={quoted(environment[name])}" for name in forwarded]
    if device == "cpu":  # nodes have declared theirs
        options += [
            "~ray_kwargs.ray_init.address",
            "~ray_kwargs.ray_init.num_gpus",
            "ray_kwargs.ray_init.num_cpus=null",
        ]
    return options
