"""Whether this machine has what the options ask for: GPUs, flash-attn, packages of loggers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig

from verl_video_tools.core.check import Check, Status
from verl_video_tools.core.environment import (
    FLASH_ATTENTION,
    install_command,
    installed_version,
    module_exists,
    python_error,
)
from verl_video_tools.verl_plugin.planned_run import known_loggers

_PADDED = "model.use_remove_padding=False and override_config.attn_implementation=sdpa, which take longer"
_LOGGER_MODULES = ("wandb", "mlflow", "swanlab", "tensorboard", "clearml", "trackio")
"""Loggers of verl that are packages of these names."""


def check_gpus(device: str, gpus: list[str], num_wanted: int) -> Iterator[Check]:
    """Whether there are as many GPUs as the run takes of a node. On a cluster this may be another machine.

    Args:
        gpus: names of those that are here.
        num_wanted: `trainer.n_gpus_per_node`.
    """
    if device != "gpu":
        return
    if not gpus:
        detail = f"the run takes {num_wanted} a node; this machine has none, so only what needs none is checked"
        yield Check("machine", "GPUs", Status.WARNING, "none here", detail)
    elif len(gpus) < num_wanted and os.environ.get("RAY_ADDRESS", "local") == "local":
        fix = f"NDEVICES_PER_NODE={len(gpus)}"
        yield Check("machine", "GPUs", Status.FAILED, f"{len(gpus)} x {gpus[0]}", f"the run takes {num_wanted}", fix)
    else:
        yield Check("machine", "GPUs", Status.OK, f"{len(gpus)} x {gpus[0]}", f"the run takes {num_wanted} a node")


def check_attention(model: DictConfig, device: str, has_gpus: bool) -> Iterator[Check]:
    """Whether flash-attn can be imported where the model's options need it.

    Args:
        model: the section `model` of the configuration.
    """
    name = FLASH_ATTENTION.distribution
    chosen = (model.get("override_config") or {}).get("attn_implementation", "flash_attention_2")
    if chosen != "flash_attention_2":
        yield Check("machine", "attention", Status.OK, str(chosen))
        return
    fix = f"{install_command(FLASH_ATTENTION)} --no-build-isolation, or {_PADDED}"
    if device != "gpu":
        detail = "the options choose flash_attention_2, which needs a GPU"
        yield Check("machine", name, Status.FAILED, detail=detail, fix=_PADDED)
    elif installed_version(name) is None:
        missing = "not installed, and the options choose flash_attention_2"
        status = Status.FAILED if has_gpus else Status.WARNING  # a machine without GPUs is not the one that runs
        yield Check("machine", name, status, detail=missing, fix=fix)
    elif error := python_error("import flash_attn") if has_gpus else "":
        yield Check("machine", name, Status.FAILED, detail=f"installed but does not load ({error})", fix=fix)
    else:
        yield Check("machine", name, Status.OK, installed_version(name) or "")


def check_loggers(loggers: Any) -> Iterator[Check]:
    """Whether the packages of `trainer.logger` are there.

    Args:
        loggers: one name or several.
    """
    names = [loggers] if isinstance(loggers, str) else list(loggers or ())
    if unknown := [name for name in names if name not in known_loggers()]:
        detail = f"verl knows no {', '.join(unknown)}, and says so after it has loaded the model"
        fix = f"LOGGER of: {', '.join(known_loggers())}"
        yield Check("machine", "logger", Status.FAILED, ", ".join(names), detail, fix)
        return
    missing = [name for name in names if name in _LOGGER_MODULES and not module_exists(name)]
    if missing:
        fix = f"uv pip install {' '.join(missing)}, or LOGGER='[\"console\"]'"
        yield Check("machine", "logger", Status.FAILED, ", ".join(names), f"not installed: {', '.join(missing)}", fix)
    else:
        yield Check("machine", "logger", Status.OK, ", ".join(names))
    if "wandb" in names and not missing and not _has_wandb_key():
        detail = "no key: wandb asks for one at the start, and a run in the background fails"
        yield Check(
            "machine",
            "wandb",
            Status.WARNING,
            detail=detail,
            fix="wandb login, or WANDB_API_KEY, or WANDB_MODE=offline",
        )


def _has_wandb_key() -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return True
    try:
        with open(os.path.expanduser(os.environ.get("NETRC", "~/.netrc")), encoding="utf-8") as file:
            return "wandb" in file.read()
    except OSError:
        return False
