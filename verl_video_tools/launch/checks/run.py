"""The list of a run's checks. Each start executes the cheap ones; `vvt doctor --run` and `--dry-run` execute all.

Checks of rows are in `rows.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import gcd, lcm
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.machine import (
    installed_version,
    list_gpus,
    memory_bytes,
    module_exists,
    num_cpus,
    page,
)
from verl_video_tools.launch.checks.installation import (
    FLASH_ATTENTION,
    check_flash_attention,
    check_gpu,
    judge_checks,
)
from verl_video_tools.launch.checks.report import Check, PlannedRun, Report, Status, one_line
from verl_video_tools.launch.checks.rows import check_grpo_rows, check_sequences, check_sft_rows
from verl_video_tools.launch.plan import GPU, estimate_config, memory_warnings
from verl_video_tools.services.retrieval import local
from verl_video_tools.services.tool_model import EndpointToolModel, ToolModelConfig
from verl_video_tools.verl_plugin.model_tokens import RunModel, load_run_model
from verl_video_tools.verl_plugin.run_checks import check_family, check_grpo_options
from verl_video_tools.verl_plugin.settings import judge_config, retrieval_config, tool_model_config

_MODEL_FIX = "MODEL_PATH: the folder of a model with its processor, or its name on the Hugging Face hub"
_LOGGER_MODULES = ("wandb", "mlflow", "swanlab", "tensorboard", "clearml", "trackio")
"""Loggers of verl that are packages of these names."""


ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
REPLY_SECONDS = 20.0
"""Time for one reply; a run waits longer."""
CONNECT_SECONDS = 2.0
"""Time in which a cluster has to accept a connection. Ray itself tries for minutes, and says nothing on the console."""


def check_run(run: PlannedRun) -> Report:
    """The results of all checks that apply to a run before it starts."""
    results: list[Check] = []
    for item in RUN_CHECKS:
        if run.program in item.programs and (run.thorough or item.is_cheap):
            results += _results(item, run)
            if item.check is check_options and results[-1].status is Status.FAILED:
                break  # the others read options that verl refuses
    return Report(run.device, results)


# -------------------------------------------------------------------------------------------------------------- options


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
    name, summary = "group", f"{number} per question, temperature {temperature:g}"
    if number < 2:
        detail = "GRPO compares the rollouts of a question, and one alone has no advantage: nothing is learnt"
        yield Check("configuration", name, Status.FAILED, summary, detail, "set actor_rollout_ref.rollout.n=8")
    elif temperature <= 0:
        detail = "without sampling all rollouts of a question are the same, and none has an advantage"
        yield Check(
            "configuration", name, Status.FAILED, summary, detail, "set actor_rollout_ref.rollout.temperature=1"
        )
    else:
        yield Check("configuration", name, Status.OK, summary)


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
    """Problems, each with the option to set. Each assumes that those before it are absent: the caller takes one."""
    actor, rollout, ref = (OmegaConf.select(config, section) for section in (ACTOR, ROLLOUT, REF))
    shards = int(actor.ulysses_sequence_parallel_size)
    yield from _sharing_problem(num_ranks, shards, f"{ACTOR}.ulysses_sequence_parallel_size")
    if config.trainer.get("val_only"):
        return  # no update
    ranks, group = num_ranks // shards, int(rollout.n)
    mini_batch = int(actor.ppo_mini_batch_size)
    if mini_batch * group % ranks:
        step = ranks // gcd(ranks, group)
        detail = f"a mini-batch of {mini_batch} x {group} rollouts cannot be dealt to {ranks} training ranks"
        yield detail, f"{ACTOR}.ppo_mini_batch_size={-(-mini_batch // step) * step}"
    batch = mini_batch if _is_separate(config) else int(config.data.train_batch_size)
    multiple = lcm(ranks, mini_batch * group)  # verl fills a batch up to a multiple of this
    of_rank = -(-batch * group // multiple) * multiple // ranks
    if of_rank < 2:
        detail = f"{batch} x {group} rollouts for {ranks} training ranks: verl cannot update on fewer than two of each"
        yield detail, f"data.train_batch_size={-(-2 * ranks // group)}"
    micro_batches = [(mini_batch * group // ranks, f"{ACTOR}.ppo_micro_batch_size_per_gpu", actor.use_dynamic_bsz)]
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
        if not is_dynamic:
            yield from _micro_batch_problem(f"{number} rollouts", number, config, option)


def _sft_problems(config: DictConfig, num_ranks: int) -> Iterator[tuple[str, str]]:
    """The same of fine-tuning."""
    shards = int(config.engine.ulysses_sequence_parallel_size)
    yield from _sharing_problem(num_ranks, shards, "engine.ulysses_sequence_parallel_size")
    ranks, batch = num_ranks // shards, int(config.data.train_batch_size)
    if batch < ranks:  # verl leaves out what does not fill all ranks
        yield f"a batch of {batch} rows leaves none to some of {ranks} training ranks", f"data.train_batch_size={ranks}"
    if not config.data.use_dynamic_bsz:
        number = batch // ranks
        yield from _micro_batch_problem(f"{number} rows", number, config, "data.micro_batch_size_per_gpu")


def _sharing_problem(num_ranks: int, shards: int, option: str) -> Iterator[tuple[str, str]]:
    if num_ranks % shards:
        detail = f"{num_ranks} GPUs cannot be divided into groups of {shards} that share a sequence"
        yield detail, f"{option}={_divisor(num_ranks, shards)}"


def _micro_batch_problem(what: str, number: int, config: DictConfig, option: str) -> Iterator[tuple[str, str]]:
    size = OmegaConf.select(config, option)
    if size and number % int(size):
        detail = f"{what} of a training rank cannot be divided into micro-batches of {size}"
        yield detail, f"{option}={_divisor(number, int(size))}"


def _is_separate(config: DictConfig) -> bool:
    """Whether the engine has GPUs of its own, and each update takes a mini-batch."""
    return str(OmegaConf.select(config, "trainer.v1.trainer_mode")).endswith("separate_async")


def _divisor(number: int, requested: int) -> int:
    """The largest divisor of `number` that is no larger than `requested`."""
    return max(divisor for divisor in range(1, requested + 1) if number % divisor == 0)


# ------------------------------------------------------------------------------------------------------- model, machine


def check_model(run: PlannedRun) -> Iterator[Check]:
    """The model's family, by its tokenizer and processor; weights are only looked for."""
    path = str(run.model_section.path)
    try:
        run.model = load_run_model(run.model_section, run.config.data, run.stand_in)
    except UsageError as error:
        yield Check("model", "processor", Status.FAILED, path, str(error), _MODEL_FIX)
        return
    envelope = run.model.envelope
    summary = (
        f"{type(run.model.processor).__name__}, images of {envelope.min_pixels:,} to {envelope.max_pixels:,} pixels"
    )
    yield Check("model", "processor", Status.OK, summary)
    engine_dtype = run.config.actor_rollout_ref.rollout.dtype if run.program == "grpo" else None
    yield _family(run.model, run.model_section, engine_dtype)
    if run.stand_in is not None:
        detail = f"not there yet: trained first; tokenizer and processor are those of {run.stand_in}"
        yield Check("model", "weights", Status.OK, path, detail)
    elif problem := _missing_weights(Path(run.model.tokenizer.name_or_path)):
        yield Check("model", "weights", Status.FAILED, path, problem, "download the model again")
    else:
        yield Check("model", "weights", Status.OK, path)


def _family(model: RunModel, section: DictConfig, engine_dtype: str | None) -> Check:
    """Whether the model's family is known, and can be trained with the run's options."""
    name = model.processor.config.model_type
    try:
        warning = check_family(model.processor.config, section, engine_dtype)
    except UsageError as error:
        return Check("model", "family", Status.FAILED, name, str(error), "set the option that the message names")
    return Check("model", "family", Status.WARNING if warning else Status.OK, name, warning)


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


def check_attention(run: PlannedRun) -> Iterator[Check]:
    """The attention that the run takes. Where that is flash-attn and it is installed, it has to load."""
    options: Any = run.model_section.get("override_config") or {}
    chosen, detail = str(options.get("attn_implementation", "flash_attention_2")), ""
    if chosen == "flash_attention_2":
        if run.thorough:
            yield from check_flash_attention(run.device)
        if installed_version(FLASH_ATTENTION) is None:
            detail = "flash-attn is not installed; torch's own attention takes its place"
    yield Check("machine", "attention", Status.OK, chosen, detail)


def check_gpus(run: PlannedRun) -> Iterator[Check]:
    """Whether torch can use the GPUs; it names the driver that is too old."""
    if run.device == "gpu":
        detail = "this machine has none, so the run uses another one"
        elsewhere = [Check("machine", "GPU", Status.SKIPPED, detail=detail)]
        yield from elsewhere if run.uses_other_nodes and not list_gpus() else check_gpu(run.device)


def _lacks_devices(run: PlannedRun) -> bool:
    """Whether this is no machine for the run: what else it has tells nothing."""
    return run.device == "gpu" and not list_gpus()


def check_cpus(run: PlannedRun) -> Iterator[Check]:
    """Whether Ray counts the logical CPUs that verl's actors ask for; verl waits for them without a word."""
    config, rollout = run.config, run.config.actor_rollout_ref.rollout
    if run.uses_other_nodes or _lacks_devices(run):
        return
    num_devices = int(config.trainer.n_gpus_per_node)
    judge = config.reward.reward_model
    if judge.enable and judge.enable_resource_pool:
        num_devices += int(judge.nnodes) * int(judge.n_gpus_per_node)
    if _is_separate(config):
        num_devices += int(rollout.nnodes) * int(rollout.n_gpus_per_node)
    units = int(config.transfer_queue.backend.SimpleStorage.num_data_storage_units)
    # verl's resource pools take three per device, TransferQueue one per storage unit and one for its controller; to
    # place any further actor, Ray needs one that is free.
    needed = 3 * num_devices + units + 2
    counted = config.ray_kwargs.ray_init.num_cpus or num_cpus()
    if counted < needed:
        detail = f"verl's actors ask Ray for {needed} logical CPUs and would wait for them; Ray counts {counted}"
        fix = f"set ray_kwargs.ray_init.num_cpus={needed}, a number for Ray alone"
        yield Check("machine", "logical CPUs", Status.FAILED, str(counted), detail, fix)
    else:
        yield Check("machine", "logical CPUs", Status.OK, f"{counted}, of which verl takes {needed}")


def check_compiler(run: PlannedRun) -> Iterator[Check]:
    """Whether Triton can compile the launchers of its kernels, which a GPU's first forward pass needs."""
    if run.device != "gpu" or _lacks_devices(run):
        return
    missing = [] if os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") else ["a C compiler"]
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        missing.append("Python.h")
    if missing:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        fix = f"install gcc, and python{version}-dev or an interpreter with its headers (uv python install {version})"
        detail = f"{' and '.join(missing)} missing: Triton compiles with them"
        yield Check("machine", "compiler", Status.FAILED, detail=detail, fix=fix)
    else:
        yield Check("machine", "compiler", Status.OK)


def check_memory(run: PlannedRun) -> Iterator[Check]:
    """Memory of this machine against the plan, whose figures are estimates: they stop no run."""
    gpus = list_gpus()
    is_synthetic = "demo_dir" in run.config.video_tools  # whose tiny model fits anywhere
    if run.device != "gpu" or not gpus or is_synthetic:
        return
    gpu_bytes = min(int(gpu.rpartition(", ")[2].removesuffix(" MiB")) for gpu in gpus) * 2**20
    try:
        estimate = estimate_config(
            run.config, GPU(gpus[0], gpu_bytes), memory_bytes(), shutil.disk_usage("/dev/shm").total
        )
    except UsageError as error:
        yield Check("machine", "memory", Status.SKIPPED, detail=str(error))
        return
    if warnings := "; ".join(memory_warnings(estimate)):
        yield Check(
            "machine", "memory", Status.WARNING, detail=warnings, fix=f"as named; {page('memory')} has all parts"
        )
    else:
        yield Check("machine", "memory", Status.OK, "enough by the plan, which is an estimate")


def check_cluster(run: PlannedRun) -> Iterator[Check]:
    """Whether something listens at `RAY_ADDRESS`. For `auto` Ray itself looks, and fails at once."""
    address = run.ray_address or ""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        detail = f"no Ray answers there: {one_line(error)}"
        fix = "start the cluster (`ray start --head --port=6379`), or unset RAY_ADDRESS for a Ray of the run's own"
        yield Check("machine", "cluster", Status.FAILED, address, detail, fix)
    else:
        yield Check("machine", "cluster", Status.OK, address)


def check_loggers(run: PlannedRun) -> Iterator[Check]:
    """Whether the packages of `trainer.logger` are there; verl imports them when all workers are up."""
    configured = run.config.trainer.logger
    names = [configured] if isinstance(configured, str) else list(configured or ())
    missing = [name for name in names if name in _LOGGER_MODULES and not module_exists(name)]
    if missing:
        fix = f"uv pip install {' '.join(missing)}, or set LOGGER='[\"console\"]'"
        yield Check("machine", "logger", Status.FAILED, ", ".join(names), f"not installed: {', '.join(missing)}", fix)
    else:
        yield Check("machine", "logger", Status.OK, ", ".join(names))


# ----------------------------------------------------------------------------------------- judge, retriever, tool model


def check_judge(run: PlannedRun) -> Iterator[Check]:
    """The run's judge. Whether rows need one is a matter of the rows."""
    judge = judge_config(run.config)
    if judge is not None and judge.base_url is None:
        yield Check("judge", "judge", Status.SKIPPED, detail="verl starts it with the run")
    elif judge is not None:
        yield from judge_checks(replace(judge, deadline_seconds=min(judge.deadline_seconds, REPLY_SECONDS)))


def check_retriever(run: PlannedRun) -> Iterator[Check]:
    """Load the run's encoder, on the CPU of this process."""
    retrieval = retrieval_config(run.config.actor_rollout_ref.rollout)
    if retrieval is None:
        return
    try:
        local(replace(retrieval, num_gpus=0.0))
    except (VideoToolsError, ImportError) as error:
        fix = f"correct video_tools.retrieval ({page('retrieval')})"
        yield Check("retriever", "encoder", Status.FAILED, retrieval.model, one_line(error), fix)
    else:
        yield Check("retriever", "encoder", Status.OK, retrieval.model)


def check_tool_model(run: PlannedRun) -> Iterator[Check]:
    """Whether the model that tools ask can be reached and replies."""
    tool_model = tool_model_config(run.config.actor_rollout_ref.rollout)
    if tool_model is not None:
        yield asyncio.run(_ask(replace(tool_model, deadline_seconds=min(tool_model.deadline_seconds, REPLY_SECONDS))))


async def _ask(config: ToolModelConfig) -> Check:
    try:
        async with EndpointToolModel(config) as model:
            reply = await model.ask(("Reply with the word ready.",), config.deadline_seconds)
    except VideoToolsError as error:
        fix = f"start the server, or correct video_tools.tool_model ({page('tools')})"
        return Check("tool model", "reply", Status.FAILED, str(config.base_url), one_line(error), fix)
    return Check("tool model", "reply", Status.OK, f"{reply.model}: {reply.text[:40]!r}")


# ------------------------------------------------------------------------------------------------------------- the list


@dataclass(frozen=True)
class RunCheck:
    """One entry of the list.

    Attributes:
        group: heading of its results.
        is_cheap: it takes a second or less (torch on a GPU: a few), so that every start of a run can afford it.
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
    RunCheck("judge", check_judge, is_cheap=False, programs=GRPO),
    RunCheck("retriever", check_retriever, is_cheap=False, programs=GRPO),
    RunCheck("tool model", check_tool_model, is_cheap=False, programs=GRPO),
    RunCheck("machine", check_gpus),
    RunCheck("machine", check_attention),
    RunCheck("machine", check_compiler),
    RunCheck("machine", check_cpus, programs=GRPO),
    RunCheck("machine", check_memory, programs=GRPO),
    RunCheck("machine", check_loggers),
    RunCheck("machine", check_cluster, programs=GRPO),
)
"""In the order of the table; those of rows need the model."""


def _results(item: RunCheck, run: PlannedRun) -> list[Check]:
    """The results of one check. A bug in it becomes a warning, which neither hides other results nor stops a run."""
    results: list[Check] = []
    try:
        for check in item.check(run):
            results.append(check)
    except VideoToolsError as error:
        fix = f"correct the option that the message names ({page('training')})"
        results.append(Check(item.group, "options", Status.FAILED, detail=str(error), fix=fix))
    except Exception as error:
        name = item.check.__name__.removeprefix("check_")
        results.append(Check(item.group, name, Status.WARNING, detail=f"not checked: {one_line(error)}"))
    return results
