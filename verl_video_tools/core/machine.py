"""This machine and this installation: packages, GPUs, models and pages, without heavy imports."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from verl_video_tools.core.errors import UsageError

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
"""Pages of a wheel and of a checkout."""

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""`owner/name`."""

ANSWER_SECONDS = 5.0
"""Time limit of the request whether the hub has a model."""

_RENAMED = {"Qwen2_5_VLImageProcessor": "Qwen2VLImageProcessor"}
"""Image processors by the name of their first weeks, which fine-tuned checkpoints of that time still have."""

_CACHED_FILES = ("config.json", "preprocessor_config.json", "processor_config.json", "tokenizer_config.json")


def installed_version(distribution: str) -> str | None:
    """The version in the distribution's metadata; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def module_exists(module: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: a half-initialised module without a spec
        return False


def detect_device() -> str:
    """`gpu` or `cpu`: the environment variable DEVICE if it is set, otherwise by whether nvidia-smi lists a GPU."""
    device = os.environ.get("DEVICE", "")
    return device if device in ("gpu", "cpu") else ("gpu" if list_gpus() else "cpu")


def num_cpus() -> int:
    """Logical CPUs of this machine, or of the container that the process runs in, as Ray counts them."""
    cpus = os.cpu_count() or 1
    quota, _, period = _cgroup_limit("cpu.max").partition(" ")
    return min(cpus, math.ceil(int(quota) / int(period))) if quota.isdigit() and period.isdigit() else cpus


def memory_bytes() -> int:
    """Memory of this machine, or that the container may take."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _cgroup_limit("memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def _cgroup_limit(name: str, folder: Path = Path("/sys/fs/cgroup")) -> str:
    """Of the container, whose own group is the root that it sees; empty without one."""
    try:
        return (folder / name).read_text().strip()
    except OSError:
        return ""


def list_gpus() -> list[str]:
    """Names and memory of the GPUs that nvidia-smi lists, such as `NVIDIA H100, 81559 MiB`; empty if it is missing or
    fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


# ---------------------------------------------------------------------------------------------------------------- pages


def page(name: str) -> str:
    """The URL of a page of the documentation: on the site that the package's metadata names as Documentation
    (`[project.urls]`), otherwise the file that comes with the package.

    Args:
        name: its path in docs without suffix, such as "judge".
    """
    if site := _site():
        return f"{site}/{name}/"
    for folder in _FOLDERS:
        if (path := folder / f"{name}.md").is_file():
            return path.as_uri()
    return f"docs/{name}.md of the source distribution"


@cache
def _site() -> str | None:
    try:
        addresses = metadata("verl_video_tools").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        return None
    by_label = dict(address.split(", ", 1) for address in addresses)
    return by_label.get("Documentation", "").rstrip("/") or None


# --------------------------------------------------------------------------------------------------------------- models
# Without a network, libraries repeat requests to the hub for minutes. So a model is located before anything is loaded.


def locate_model(name: str) -> str:
    """The folder or name to load a model or its processor from. If the hub cannot be reached, it is a folder of the
    hub's cache.

    The hub gets one request of at most `ANSWER_SECONDS`, and none if HF_HUB_OFFLINE is set.

    Raises:
        UsageError: it is neither a folder nor a name of the form `owner/name`, the hub has no such model, the hub
            cannot be asked and its cache does not have it, or its processor has a name that transformers has dropped.
    """
    if name and Path(name).is_dir():
        _check_processor(Path(name))
        return name
    if not HUB_NAME.fullmatch(name):
        what = "a file" if Path(name).is_file() else "no folder here"
        raise UsageError(f"model {name!r} is {what}; give the folder of a model, or its name on the hub as owner/name")
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        return _cached(name, "HF_HUB_OFFLINE is set")
    try:
        HfApi().model_info(name, timeout=ANSWER_SECONDS)
    except GatedRepoError as error:
        return _cached(name, "the hub asks for a token with access to it (`hf auth login`)", error)
    except RepositoryNotFoundError as error:
        return _cached(name, "the hub has no public model of that name", error)
    except HfHubHTTPError as error:  # the hub or a proxy is in trouble
        return _cached(name, f"the hub gave no answer ({_first_line(error)})", error)
    except Exception as error:  # the library may use any HTTP client
        return _cached(name, f"the hub cannot be reached ({_first_line(error)})", error)
    return name


def read_chat_template(model: str) -> str | None:
    """The chat template of a model's processor, or of its tokenizer where the processor has none; None without one.

    Raises:
        UsageError: as `locate_model`, or the hub does not give the files.
        OSError: a file cannot be read.
        ValueError: a file is damaged.
    """
    folder = Path(locate_model(model))
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(model, allow_patterns=["chat_template.*", "tokenizer_config.json"]))
        except Exception as error:  # the library may use any HTTP client
            folder = Path(_cached(model, f"the hub gave no chat template ({_first_line(error)})", error))
    for name in ("chat_template.json", "chat_template.jinja", "tokenizer_config.json"):  # as transformers prefers them
        if (file := folder / name).is_file():
            text = file.read_text(encoding="utf-8")
            template = text if file.suffix == ".jinja" else json.loads(text).get("chat_template")
            if isinstance(template, str):
                return template
    return None


def _cached(name: str, reason: str, cause: Exception | None = None) -> str:
    """The model's folder in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    for file in _CACHED_FILES:
        path = try_to_load_from_cache(name, file)
        if isinstance(path, str):
            _check_processor(Path(path).parent)
            return str(Path(path).parent)
    raise UsageError(
        f"model {name!r} is no folder here and not in the cache of the Hugging Face hub, and {reason}; give the folder "
        "of a model, or download it first: hf download " + name
    ) from cause


def _check_processor(folder: Path) -> None:
    """Raises UsageError for a folder of January or February 2025, whose processor transformers no longer finds."""
    file = folder / "preprocessor_config.json"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    for former, name in _RENAMED.items():
        if f'"{former}"' in text:
            raise UsageError(
                f'{file} names {former}, which transformers has renamed; write "image_processor_type": "{name}" there'
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
