"""The list of a run's checks. Each start executes the cheap ones; `vvt doctor --run` and `--dry-run` execute all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.machine import module_exists, page
from verl_video_tools.launch.checks.installation import (
    FLASH_ATTENTION,
    FLASH_ATTENTION_FIX,
    SLOWER_ATTENTION,
    flash_attention_fault,
)
from verl_video_tools.launch.checks.planned import PlannedRun
from verl_video_tools.launch.checks.report import Check, Report, Status, one_line
from verl_video_tools.launch.checks.rows import check_grpo_rows, check_initial_frames, check_sequences, check_sft_rows
from verl_video_tools.launch.checks.services import check_judge, check_retriever, check_tool_model
from verl_video_tools.launch.checks.sizes import check_sizes
from verl_video_tools.verl_plugin.planned_run import check_grpo_options, load_run_model

_MODEL_FIX = "MODEL_PATH: the folder of a model with its processor, or its name on the Hugging Face hub"
_LOGGER_MODULES = ("wandb", "mlflow", "swanlab", "tensorboard", "clearml", "trackio")
"""Loggers of verl that are packages of these names."""


def check_run(run: PlannedRun) -> Report:
    """What can be said of a run before it starts."""
    found: list[Check] = []
    for item in RUN_CHECKS:
        if run.program in item.programs and (run.thorough or item.is_cheap):
            found += _results(item, run)
            if item.check is check_options and found[-1].status is Status.FAILED:
                break  # the others read options that verl refuses
    return Report(run.device, found)


def check_options(run: PlannedRun) -> Iterator[Check]:
    """What verl and our trainer check of the options when they start."""
    check_grpo_options(run.config)
    yield Check("configuration", "options", Status.OK)


def check_group(run: PlannedRun) -> Iterator[Check]:
    """Whether the rollouts of a question can differ. GRPO learns from nothing else."""
    rollout = run.config.actor_rollout_ref.rollout
    if str(run.config.algorithm.adv_estimator) != "grpo" or run.config.trainer.get("val_only"):
        return
    number, temperature = int(rollout.n), float(rollout.temperature)
    name, found = "group", f"{number} per question, temperature {temperature:g}"
    if number < 2:
        detail = "GRPO compares the rollouts of a question, and one alone has no advantage: nothing is learnt"
        yield Check("configuration", name, Status.FAILED, found, detail, "set actor_rollout_ref.rollout.n=8")
    elif temperature <= 0:
        detail = "without sampling all rollouts of a question are the same, and none has an advantage"
        yield Check("configuration", name, Status.FAILED, found, detail, "set actor_rollout_ref.rollout.temperature=1")
    else:
        yield Check("configuration", name, Status.OK, found)


def check_model(run: PlannedRun) -> Iterator[Check]:
    """The model's family, by its tokenizer and processor; weights are only looked for."""
    path = str(run.model_section.path)
    try:
        run.model = load_run_model(run.model_section, run.config.data, run.stand_in)
    except UsageError as error:
        yield Check("model", "processor", Status.FAILED, path, str(error), _MODEL_FIX)
        return
    envelope = run.model.tokens.envelope
    found = f"{type(run.model.processor).__name__}, images of {envelope.min_pixels:,} to {envelope.max_pixels:,} pixels"
    yield Check("model", "processor", Status.OK, found)
    if run.stand_in is not None:
        detail = f"not there yet: trained first; tokenizer and processor are those of {run.stand_in}"
        yield Check("model", "weights", Status.OK, path, detail)
    elif fault := _missing_weights(Path(run.model.source)):
        yield Check("model", "weights", Status.FAILED, path, fault, "download the model again")
    else:
        yield Check("model", "weights", Status.OK, path)


def _missing_weights(folder: Path) -> str:
    """What a folder lacks; empty where nothing is missing. Of a name on the hub the run downloads what it lacks."""
    if not folder.is_dir():
        return ""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return "" if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")) else "no file of weights"
    names: Iterable[str] = json.loads(index.read_text("utf-8"))["weight_map"].values()
    missing = sorted(name for name in set(names) if not (folder / name).is_file())
    return f"missing: {', '.join(missing[:3])}" if missing else ""


def check_gpus(run: PlannedRun) -> Iterator[Check]:
    """Whether a run on this machine alone finds the GPUs that it wants; Ray would wait for them."""
    wanted = int(run.config.trainer.n_gpus_per_node)
    if not run.gpus or run.uses_other_nodes:
        return
    if wanted > len(run.gpus):
        detail = f"this machine has {len(run.gpus)}, and the run wants {wanted}"
        yield Check("machine", "GPUs", Status.FAILED, run.gpus[0], detail, f"set NDEVICES_PER_NODE={len(run.gpus)}")
    else:
        yield Check("machine", "GPUs", Status.OK, f"{len(run.gpus)} x {run.gpus[0]}")


def check_attention(run: PlannedRun) -> Iterator[Check]:
    """Whether flash-attn is there where the model's options need it."""
    options: Any = run.model_section.get("override_config") or {}
    chosen = options.get("attn_implementation", "flash_attention_2")
    name = FLASH_ATTENTION.distribution
    if chosen != "flash_attention_2":
        yield Check("machine", "attention", Status.OK, str(chosen))
    elif run.device != "gpu":
        detail = "the options choose flash_attention_2, which needs a GPU"
        yield Check("machine", name, Status.FAILED, detail=detail, fix=f"set {SLOWER_ATTENTION}")
    elif not run.gpus:
        yield Check("machine", name, Status.SKIPPED, detail="this machine has no GPU, so the run uses another one")
    elif fault := flash_attention_fault(loads=run.thorough):
        fix = f"{FLASH_ATTENTION_FIX}; or set {SLOWER_ATTENTION}"
        yield Check("machine", name, Status.FAILED, detail=f"{fault}, and the options choose it", fix=fix)
    else:
        yield Check("machine", name, Status.OK)


def check_loggers(run: PlannedRun) -> Iterator[Check]:
    """Whether the packages of `trainer.logger` are there; verl imports them when all workers are up."""
    given = run.config.trainer.logger
    names = [given] if isinstance(given, str) else list(given or ())
    missing = [name for name in names if name in _LOGGER_MODULES and not module_exists(name)]
    if missing:
        fix = f"uv pip install {' '.join(missing)}, or set LOGGER='[\"console\"]'"
        yield Check("machine", "logger", Status.FAILED, ", ".join(names), f"not installed: {', '.join(missing)}", fix)
    else:
        yield Check("machine", "logger", Status.OK, ", ".join(names))


@dataclass(frozen=True)
class RunCheck:
    """One entry of the list.

    Attributes:
        group: heading of its results.
        is_cheap: it takes a second or less, so that every start of a run can afford it.
        programs: of verl whose runs it is for.
    """

    group: str
    check: Callable[[PlannedRun], Iterable[Check]]
    is_cheap: bool = True
    programs: tuple[str, ...] = ("grpo", "sft")


GRPO, SFT = ("grpo",), ("sft",)
RUN_CHECKS = (
    RunCheck("configuration", check_options, programs=GRPO),
    RunCheck("configuration", check_sizes),
    RunCheck("configuration", check_group, programs=GRPO),
    RunCheck("model", check_model),
    RunCheck("rows", check_grpo_rows, programs=GRPO),
    RunCheck("rows", check_sft_rows, programs=SFT),
    RunCheck("rows", check_sequences, is_cheap=False, programs=SFT),
    RunCheck("rows", check_initial_frames, is_cheap=False, programs=GRPO),
    RunCheck("judge", check_judge, is_cheap=False, programs=GRPO),
    RunCheck("retriever", check_retriever, is_cheap=False, programs=GRPO),
    RunCheck("tool model", check_tool_model, is_cheap=False, programs=GRPO),
    RunCheck("machine", check_gpus),
    RunCheck("machine", check_attention),
    RunCheck("machine", check_loggers),
)
"""In the order of the table; those of rows need the model."""


def _results(item: RunCheck, run: PlannedRun) -> list[Check]:
    """What a check finds. A failure of its own is told, and neither hides the others' results nor stops a run."""
    found: list[Check] = []
    try:
        for check in item.check(run):
            found.append(check)
    except VideoToolsError as error:
        fix = f"correct the option that the message names ({page('training')})"
        found.append(Check(item.group, "options", Status.FAILED, detail=str(error), fix=fix))
    except Exception as error:
        name = item.check.__name__.removeprefix("check_")
        found.append(Check(item.group, name, Status.WARNING, detail=f"not checked: {one_line(error)}"))
    return found
