"""One training run, from its rows to the exported model: `vvt train`."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.core.files import hold_output
from verl_video_tools.core.machine import list_gpus, page
from verl_video_tools.launch.checks.report import ROWS_OF_A_START, Check, PlannedRun, Report, Status
from verl_video_tools.launch.data import export_expert, export_rollouts, make_demo, run_methods
from verl_video_tools.launch.environment import CPU, Variables, quoted, ray_options, read_variables, run_environment
from verl_video_tools.verl_plugin.checkpoints import LAST_CHECKPOINT
from verl_video_tools.verl_plugin.marked_warnings import MARK

Stage = Literal["grpo", "sft", "rft"]
STOP_FILE = "stop_requested"
STARTED_WITH = "started_with.txt"
_FOLDERS = ("", "/fields", "/synthetic", "/machine", "/model", "/lora", "/correction")
GROUPS = tuple(f"+video_tools{folder}" for folder in _FOLDERS)
"""All config groups, in the order in which Hydra merges them: a later group replaces values of an earlier one."""


@dataclass(frozen=True)
class Request:
    """What a user asks for.

    Attributes:
        overrides: of Hydra: groups (`+video_tools=longvt_grpo`) and options.
        synthetic: train the tiny model in the synthetic world, as a run without a GPU does in any case.
        smoke_test: two steps with a real run's options in the synthetic world, then a third that resumes.
        save_on_signal: at the first SIGINT, SIGTERM or SIGHUP, end the step and save a checkpoint.
        variables: of the run; None: those of the environment.
    """

    stage: Stage
    overrides: tuple[str, ...]
    synthetic: bool = False
    smoke_test: bool = False
    save_on_signal: bool = False
    variables: Variables | None = None

    @property
    def program(self) -> Literal["grpo", "sft"]:
        return "grpo" if self.stage == "grpo" else "sft"


@dataclass(frozen=True)
class Plan:
    """A run before it starts: its configuration, and the options that verl composes it of."""

    request: Request
    device: str
    variables: Variables
    config: DictConfig
    overrides: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def folder(self) -> Path:
        return Path(self.config.trainer.default_local_dir)

    @property
    def model_path(self) -> str:
        section = self.config.actor_rollout_ref if self.request.program == "grpo" else self.config
        return str(section.model.path)

    @property
    def joins_cluster(self) -> bool:
        """Whether it runs on a Ray cluster that is there already."""
        return self.request.program == "grpo" and self.variables.ray_address is not None

    @property
    def options(self) -> list[str]:
        """What the program is started with: workers of a cluster get the variables of this start."""
        joined = ray_options(self.device, self.environment) if self.joins_cluster else []
        return [*self.overrides, *joined]

    @property
    def is_synthetic(self) -> bool:
        return "demo_dir" in self.config.video_tools


def train(request: Request) -> int:
    """Run it to its end; the exit code of the training program, or 128 + the number of the signal that ended it.

    Raises:
        UsageError: the request does not make a run.
    """
    plan = _plan_with_rows(request)
    if foreign := _foreign_checkpoints(plan):
        raise UsageError(f"{foreign.detail}. {foreign.fix}")
    report = _check(plan, thorough=False)
    if problems := report.problems():
        print(f"{MARK} {plan.config.trainer.experiment_name}:{problems}", file=sys.stderr, flush=True)
    if report.failed:
        return 1
    if status := _cold_start(plan):
        return status
    _note_origin(plan)
    status = _start(plan)
    if request.smoke_test and status == 0:
        steps = int(plan.config.trainer.total_training_steps)
        log = Path(plan.environment["VERL_FILE_LOGGER_PATH"])
        again = {**plan.environment, "VERL_FILE_LOGGER_PATH": str(log.with_name(f"{log.stem}_resumed{log.suffix}"))}
        more = f"trainer.total_training_steps={steps + 1}"
        status = _start(replace(plan, overrides=(*plan.overrides, more), environment=again))
    if status:
        return status
    _report(plan)
    return 0


def dry_run(request: Request) -> Report:
    """Check all that can be checked of a run without Ray, an engine or weights. It may make the rows first.

    Raises:
        UsageError: the request does not make a run.
    """
    plan = _plan_with_rows(request)
    report, foreign = _check(plan, thorough=True), _foreign_checkpoints(plan)
    return replace(report, checks=[*report.checks, foreign]) if foreign else report


# ---------------------------------------------------------------------------------------------------------------- plan


def plan_run(request: Request) -> Plan:
    """Compose the run's configuration. Sets the variables that verl reads when it is imported."""
    variables = request.variables or read_variables(os.environ)
    device = variables.values.get("DEVICE") or _device(variables)
    if device not in ("cpu", "gpu"):
        raise UsageError(f"DEVICE must be cpu or gpu, got {device!r}")
    ours = {name: value for name, value in CPU.items() if device == "cpu" and name not in os.environ}
    os.environ.update(ours)
    groups, options = _split(request.overrides)
    name = _run_name(groups, request.stage)
    _check_request(request, device, groups)
    has_own_rows = _has_own_rows(request, variables, options)
    groups = sorted(groups + _default_groups(request, device, groups, name, has_own_rows), key=_place)
    synthetic = any(group.startswith("+video_tools/synthetic=") for group in groups)
    defaults = _default_options(request, variables, name, synthetic)
    overrides = [*groups, *defaults, *variables.overrides(request.program), *options]
    config = compose(request.program, overrides)
    if not Path(config.trainer.default_local_dir).is_absolute():  # workers run in other folders
        overrides.append(f"trainer.default_local_dir={quoted(Path(config.trainer.default_local_dir).absolute())}")
        config = compose(request.program, overrides)
    excluded = {*ours, *(() if request.variables is None else ("VERL_FILE_LOGGER_PATH",))}
    inherited = {name: value for name, value in os.environ.items() if name not in excluded}
    folder = Path(config.trainer.default_local_dir)
    environment = run_environment(inherited, request.program, device, folder, variables.is_verbose)
    added = {"trainer.logger": _loggers(config), **_tools_sections(config)}
    if request.program == "grpo" and not synthetic:
        added |= _image_cache(config)
    for option, value in added.items():
        OmegaConf.update(config, option, value, force_add=True)
        text = "null" if value is None else quoted(value) if isinstance(value, str) else value
        overrides.append(f"++{option}={text}")
    return Plan(request, device, variables, config, tuple(overrides), environment)


def compose(program: Literal["grpo", "sft"], overrides: Sequence[str]) -> DictConfig:
    """What verl's program makes of these options.

    Raises:
        UsageError: an option is malformed, or does not exist.
    """
    from verl_video_tools.verl_plugin.run_checks import compose_run

    return compose_run(program, overrides)


def _device(variables: Variables) -> str:
    has_gpu = bool(list_gpus())
    if not has_gpu and variables.ray_address is not None:  # other nodes may have what this one lacks
        raise UsageError("RAY_ADDRESS names a cluster, and this node has no GPU: set DEVICE=gpu or DEVICE=cpu")
    return "gpu" if has_gpu else "cpu"


def _split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Choices of our groups, and options."""
    groups = [override for override in overrides if override.startswith("+video_tools")]
    groups = [group for group in groups if group.split("=")[0].count(".") == 0]
    return groups, [override for override in overrides if override not in groups]


def _place(group: str) -> int:
    key = group.partition("=")[0]
    return GROUPS.index(key) if key in GROUPS else len(GROUPS)


def _run_name(groups: Sequence[str], stage: Stage) -> str:
    """`longvt` of `+video_tools=longvt_grpo`."""
    for group in groups:
        key, _, value = group.partition("=")
        if key == "+video_tools":
            names = value.strip("[]").split(",")
            if not all(name.endswith(f"_{stage}") for name in names):
                raise UsageError(
                    f"+video_tools={value} is not a group of `vvt train {stage}`; names of such groups end in _{stage}"
                )
            return names[0].removesuffix(f"_{stage}")
    raise UsageError(f"a run needs a config group: +video_tools=<method>_{stage}, such as +video_tools=longvt_{stage}")


def _check_request(request: Request, device: str, groups: Sequence[str]) -> None:
    """Raises UsageError where parts of it contradict each other."""
    machine = next((group.partition("=")[2] for group in groups if group.startswith("+video_tools/machine=")), None)
    in_synthetic_world = device == "cpu" or request.synthetic or request.smoke_test
    if request.program == "sft" and (request.smoke_test or request.save_on_signal):
        option = "--smoke-test" if request.smoke_test else "--save-on-signal"
        raise UsageError(f"{option} is for reinforcement learning: give it to vvt train grpo")
    if machine and (request.smoke_test or (in_synthetic_world and not machine.startswith(("cpu_", "synthetic_")))):
        raise UsageError(
            f"+video_tools/machine={machine} is for real models, and this run trains the tiny one: leave it out, since "
            "the machine of the synthetic world follows from DEVICE"
        )


def _has_own_rows(request: Request, variables: Variables, options: Sequence[str]) -> bool:
    """Whether the run's rows are none of the synthetic world. `video_tools.demo.is_made` says that they are of one that
    was made before."""
    names_rows = "TRAIN_FILES" in variables.values or any(option.startswith("data.train_files=") for option in options)
    return names_rows and not request.smoke_test and "video_tools.demo.is_made=true" not in options


def _default_groups(request: Request, device: str, groups: Sequence[str], name: str, has_own_rows: bool) -> list[str]:
    chosen = {group.split("=")[0] for group in groups}
    defaults: list[str] = []
    if "+video_tools/synthetic" not in chosen and (device == "cpu" or request.synthetic or request.smoke_test):
        world = f"{name}_{request.stage}"
        rows = f"own_rows_{request.program}"
        defaults.append(f"+video_tools/synthetic={f'[{world},{rows}]' if has_own_rows else world}")
    if "+video_tools/machine" not in chosen:
        kind = f"{device}_smoke_test" if request.smoke_test else "cpu" if device == "cpu" else None
        if kind is None and request.synthetic:
            kind = "synthetic"
        defaults += [f"+video_tools/machine={kind or '8x80gb'}_{request.program}"]
    return defaults


def _default_options(request: Request, variables: Variables, name: str, synthetic: bool) -> list[str]:
    output_dir = variables.output_dir
    folder = output_dir / (variables.values.get("EXPERIMENT_NAME") or f"{name}_{request.stage}")
    if request.smoke_test:  # which starts from the cold start, and never from checkpoints
        folder = output_dir / f"{name}_smoke_test" / f"{datetime.now():%Y%m%d_%H%M%S}"
    options = [f"trainer.default_local_dir={quoted(folder)}"]
    if synthetic:
        options.append(f"video_tools.demo_dir={quoted(output_dir / f'demo_{name}')}")
        # The synthetic world's own values, where a group of `/model` has those of a real model.
        if request.stage == "grpo":
            options.append(f"actor_rollout_ref.model.path={quoted(output_dir / f'{name}_sft' / 'huggingface')}")
            options.append("actor_rollout_ref.rollout.tensor_model_parallel_size=1")
        if request.stage == "sft":
            options.append("model.path=${video_tools.demo_dir}/base")
    if request.stage == "rft":
        options.append(f"model.path={quoted(output_dir / f'{name}_grpo' / 'huggingface')}")
        options.append(f"video_tools.rft.records_dir={quoted(output_dir / f'{name}_grpo' / 'trajectories')}")
        if synthetic:
            options.append(f"video_tools.rft.cold_start=[{quoted(output_dir / f'{name}_sft' / 'train.parquet')}]")
    if (request.stage == "sft" and synthetic) or request.stage == "rft":
        options.append(f"data.train_files=${{trainer.default_local_dir}}/{_rows_name(variables)}")
    return options


def _rows_name(variables: Variables) -> str:
    """Each node writes its own file, with equal rows: another node's file may be incomplete when this node reads it."""
    return f"train_node{variables.node_rank}.parquet" if variables.node_rank else "train.parquet"


def _loggers(config: DictConfig) -> list[str]:
    """verl's log goes to a file, too, and its console logger writes the lines from which steps are shown."""
    from verl_video_tools.verl_plugin.run_checks import supported_loggers

    configured = config.trainer.logger
    logger = [configured] if isinstance(configured, str) else list(configured)
    if unknown := sorted(set(logger) - set(supported_loggers())):
        raise UsageError(f"trainer.logger names {', '.join(unknown)}; known are {', '.join(supported_loggers())}")
    return list(dict.fromkeys([*logger, "console", "file"]))


def _tools_sections(config: DictConfig) -> dict[str, str | None]:
    """How the run's methods list their tools. The hub or a folder may answer another process differently."""
    methods = {f"video_tools.{name}": config.video_tools[name] for name in run_methods(config)}
    return {f"{path}.tools_section": node.tools_section for path, node in methods.items() if "tools_section" in node}


def _image_cache(config: DictConfig) -> dict[str, Any]:
    """Memory for processed images of all rollouts that an inference server has under way, by `vvt estimate`."""
    option = "actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb"
    if OmegaConf.select(config, option) is not None:
        return {}
    from verl_video_tools.launch.plan import GPU, estimate_config

    try:
        return {option: estimate_config(config, GPU("any", math.inf), math.inf).host.mm_cache_gb}
    except VideoToolsError:  # an unknown model, or a method that takes no video of an hour: vLLM's default stays
        return {}


# --------------------------------------------------------------------------------------------------------------- start


def _plan_with_rows(request: Request) -> Plan:
    """The run, with the rows that it makes itself."""
    plan = plan_run(request)
    has_rows = any(option.startswith("data.train_files=") for option in plan.overrides)
    if not (has_rows or plan.is_synthetic):
        raise UsageError(f"set TRAIN_FILES to a parquet file of rows ({page('rows')})")
    if plan.is_synthetic and not plan.config.video_tools.demo.is_made:
        make_demo(plan.config)
    _make_rows(plan)
    return plan


def _make_rows(plan: Plan) -> None:
    """Of the dialogues that the run trains on, where it writes them itself."""
    rows = plan.folder / _rows_name(plan.variables)
    if str(rows) == str(plan.config.data.train_files):
        if plan.request.stage == "rft":
            export_rollouts(plan.config, rows)
        elif plan.request.stage == "sft" and plan.is_synthetic and not _has_checkpoint(plan):
            export_expert(plan.config, rows)


def _check(plan: Plan, thorough: bool) -> Report:
    """Execute the checks of a run, without the output of libraries."""
    from verl_video_tools.launch.checks.run import check_run

    with _environment({"VVT_FRAME_CACHE_BYTES": "0"}), hold_output() as output:  # no frame is needed twice
        output.discarded = True
        return check_run(_planned(plan, thorough))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for a while."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _planned(plan: Plan, thorough: bool) -> PlannedRun:
    """The run as its checks see it."""
    return PlannedRun(
        plan.request.program,
        plan.config,
        plan.device,
        thorough,
        num_rows=100 if thorough else ROWS_OF_A_START,
        stand_in=f"{plan.config.video_tools.demo_dir}/base" if _lacks_cold_start(plan) else None,
        uses_other_nodes=plan.joins_cluster or int(plan.config.trainer.nnodes) > 1,
        ray_address=plan.variables.ray_address if plan.joins_cluster else None,
    )


def _lacks_cold_start(plan: Plan) -> bool:
    """Whether the run's model has to be trained first."""
    is_missing = plan.is_synthetic and not Path(plan.model_path, "config.json").exists()
    return is_missing and Path(plan.model_path) == _cold_start_folder(plan) / "huggingface"


def _cold_start_folder(plan: Plan) -> Path:
    return plan.variables.output_dir / f"{_run_name(_split(plan.request.overrides)[0], plan.request.stage)}_sft"


def _cold_start(plan: Plan) -> int:
    """Train the model that the run starts from, where it is not there yet; an exit code."""
    if plan.request.stage != "grpo" or not _lacks_cold_start(plan):
        return 0
    folder = _cold_start_folder(plan)
    verbose = {"VERBOSE": "1"} if plan.variables.is_verbose else {}
    overrides = plan.request.overrides
    kept = [option for option in overrides if option.startswith("hydra.searchpath=")]
    # What a family needs beside its weights, such as unpacked rows; the synthetic world has its own tiny model.
    kept += [option.replace("_grpo", "_sft") for option in overrides if option.startswith("+video_tools/model=")]
    demo, composition = plan.config.video_tools.demo, plan.config.video_tools.get("compose")
    return train(
        Request(
            "sft",
            (
                *kept,
                f"+video_tools={folder.name}",
                f"trainer.default_local_dir={quoted(folder)}",
                f"video_tools.demo_dir={quoted(plan.config.video_tools.demo_dir)}",
                *(f"video_tools.demo.{key}={demo[key]}" for key in demo if key != "is_made"),
                *([f"video_tools.compose.file={quoted(composition.file)}"] if composition else []),
                "video_tools.demo.is_made=true",
            ),
            synthetic=True,
            # What else the environment says is meant for this run.
            variables=Variables({"OUTPUT_DIR": str(plan.variables.output_dir), "DEVICE": plan.device} | verbose),
        )
    )


def _has_checkpoint(plan: Plan) -> bool:
    return (plan.folder / LAST_CHECKPOINT).exists()


def _foreign_checkpoints(plan: Plan) -> Check | None:
    """What stops a run whose folder holds checkpoints of another model or of other rows; None where nothing does."""
    if plan.variables.node_rank or not _has_checkpoint(plan):  # the first node checks what all share
        return None
    failed = partial(Check, "checkpoints", "folder", Status.FAILED, "")
    if plan.request.smoke_test:
        return failed(f"{plan.folder} holds checkpoints, from which a smoke test would go on", "Name an empty folder")
    origin, path = _origin(plan), plan.folder / STARTED_WITH
    if path.exists() and path.read_text() != origin:
        return failed(
            f"{plan.folder} holds checkpoints of a run that was started with {path.read_text().strip()!r} and not "
            f"with {origin.strip()!r}",
            f"Give this one another OUTPUT_DIR. To resume from them nevertheless, remove {path}",
        )
    return None


def _note_origin(plan: Plan) -> None:
    """Leave word of what the checkpoints of the run's folder come from."""
    if not plan.variables.node_rank:
        plan.folder.mkdir(parents=True, exist_ok=True)
        (plan.folder / STARTED_WITH).write_text(_origin(plan))


def _origin(plan: Plan) -> str:
    files = plan.config.data.train_files
    # Files may have moved: a job of Ray unpacks its folder anew.
    sizes = [f"{Path(file).name} ({_size(file)} bytes)" for file in ([files] if isinstance(files, str) else files)]
    return f"MODEL_PATH {plan.model_path}\nTRAIN_FILES {' '.join(sizes)}\n"


def _size(file: str) -> int | str:
    return Path(file).stat().st_size if Path(file).exists() else "unknown"


def _program(plan: Plan) -> list[str]:
    if plan.request.program == "grpo":
        return [sys.executable, "-m", "verl.trainer.main_ppo"]
    if plan.device == "cpu":
        return [sys.executable, "-m", "verl_video_tools.verl_plugin.sft_trainer"]
    values, trainer = plan.variables.values, plan.config.trainer
    launcher = [sys.executable, "-m", "torch.distributed.run"]
    launcher += [f"--nnodes={trainer.nnodes}", f"--nproc_per_node={trainer.n_gpus_per_node}"]
    if trainer.nnodes == 1:
        launcher.append("--standalone")
    elif "NODE_RANK" in values and "MASTER_ADDR" in values:
        launcher += [f"--node_rank={values['NODE_RANK']}", f"--master_addr={values['MASTER_ADDR']}"]
        launcher.append(f"--master_port={values.get('MASTER_PORT', '29500')}")
    else:
        raise UsageError(
            f"with trainer.nnodes={trainer.nnodes} start this on every node, with its NODE_RANK from 0 and node 0's "
            "MASTER_ADDR"
        )
    return [*launcher, "-m", "verl_video_tools.verl_plugin.sft_trainer"]


def _start(plan: Plan) -> int:
    from verl_video_tools.launch.console import ENDED_BY_SIGNAL, Console
    from verl_video_tools.launch.supervise import supervise

    settings = {"DEVICE": plan.device, "MODEL_PATH": plan.model_path, "TRAIN_FILES": plan.config.data.train_files}
    settings["TRAIN_BATCH_SIZE"] = plan.config.data.train_batch_size
    experiment = plan.config.trainer.experiment_name
    print(f"{MARK} {experiment}: {' '.join(f'{name}={value}' for name, value in settings.items())}", flush=True)
    log = plan.folder / (f"run_node{plan.variables.node_rank}.log" if plan.variables.node_rank else "run.log")
    print(f"{MARK} {experiment}: all output in {log} (VERBOSE=1 shows it)", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    stop_file = plan.folder / STOP_FILE if plan.request.save_on_signal else None
    console = Console(log, plan.variables.is_verbose)
    with _environment(plan.environment):
        status = supervise([*_program(plan), *plan.options], stop_file, console=console)
    if status and status not in ENDED_BY_SIGNAL and plan.joins_cluster:
        lost_nodes = [sys.executable, "-m", "verl_video_tools.verl_plugin.watchdog"]
        with suppress(TimeoutExpired):
            subprocess.run(lost_nodes, timeout=120, stdout=sys.stderr)
    return status


def _report(plan: Plan) -> None:
    """Print the summary of a run that has succeeded, and export its model."""
    if plan.variables.node_rank:
        return
    from verl_video_tools.records.report import print_summary, smoke_test_report

    try:
        print_summary(plan.folder)
    except VideoToolsError as error:  # the model was trained nevertheless
        print(f"{MARK} no summary: {error}", file=sys.stderr)
    if _has_checkpoint(plan):  # none after trainer.val_only=True
        from verl_video_tools.verl_plugin.export_model import export_model

        export_model(plan.folder, plan.folder / "huggingface")
    if plan.request.smoke_test:
        print(smoke_test_report(plan.device, plan.folder))
