"""The evaluated model: a vLLM server for it, a digest of its files, and the sizes of its images."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from verl_video_tools.config import VLLM_CPU_ENVIRONMENT
from verl_video_tools.core.errors import EndpointError, SetupError, UsageError
from verl_video_tools.core.machine import detect_device, locate_model
from verl_video_tools.core.types import PixelEnvelope, RolloutLimits

# Not `vllm serve`, because that command needs a distribution `vllm`, and the CPU build has another name.
COMMAND = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
START_SECONDS = 1800.0
"""Time limit to load a model. One of 72B from a network drive takes many minutes."""
STOP_SECONDS = 30.0
"""Time between SIGTERM and SIGKILL."""

_POLL_SECONDS = 0.2
_NOTICE_SECONDS = 2.0
"""Time in which a server that has dropped a connection may exit."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_MAX_LOG_LINES = 8
_ERROR = re.compile(r"(?:^|[])] )((?:\w+\.)*\w*(?:Error|Exception): .+)")
"""The last line of a traceback in the log, after the process name and the place in the code."""

_CPU_OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "enforce-eager": True,
    "skip-mm-profiling": True,  # it measures the memory for the cache, which has a fixed size on CPUs
}


@asynccontextmanager
async def served_model(
    model: str,
    log: Path,
    limits: RolloutLimits,
    options: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    takes_video: bool = False,
    start_seconds: float = START_SECONDS,
) -> AsyncIterator[str]:
    """Serve a model on a free port of this machine. The server exits with the context, or with this process.

    Args:
        model: folder or name.
        log: file for the server's output.
        limits: images and tokens of a request, as in the method's recipe.
        options: options of `vllm serve` without dashes, which override ours. True means an option without a value.
        name: the served model's name; default: `model`.
        takes_video: initial frames are the model's video input instead of images.
        start_seconds: time limit until the server is healthy.

    Returns:
        The server's base URL.

    Raises:
        UsageError: the log cannot be written.
        SetupError: the server exited before it was healthy, or was not healthy in time; shows the end of its log.
        EndpointError: raised in the context after the server has exited; shows the end of its log, too.
    """
    on_cpu = detect_device() == "cpu"
    max_tokens = _max_tokens(model, limits)
    # vLLM reserves memory for 14 frames of a video, or for the tokens of one pass.
    limits_of_media = (
        {"limit-mm-per-prompt": {"image": 0, "video": 1}, "max-num-batched-tokens": max_tokens}
        if takes_video
        else {"limit-mm-per-prompt": {"image": limits.images, "video": 0}}
    )
    values = {
        "model": model,
        "served-model-name": name or model,
        "host": "127.0.0.1",
        "port": _free_port(),
        # Otherwise vLLM samples with the model's generation_config.json, such as with a repetition penalty.
        "generation-config": "vllm",
        "max-model-len": max_tokens,
        **limits_of_media,
        **(_CPU_OPTIONS if on_cpu else {}),
        **(options or {}),
    }
    server = _start(
        [*COMMAND, *_arguments(values)], log, ({**VLLM_CPU_ENVIRONMENT} if on_cpu else {}) | dict(os.environ)
    )
    try:
        await _await_health(server, f"http://{values['host']}:{values['port']}/health", log, start_seconds)
        yield f"http://{values['host']}:{values['port']}/v1"
    except EndpointError as error:
        with suppress(subprocess.TimeoutExpired):
            server.wait(_NOTICE_SECONDS)
        if server.poll() is None:
            raise
        raise EndpointError(f"{error}; the server ended with status {server.returncode}; {_tail(log)}") from error
    finally:
        _end(server)


def _start(command: list[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    except OSError as error:
        raise UsageError(f"cannot write {log}: {error.strerror}") from error
    with output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # the terminal's interrupt reaches only us, and `_end` the server's workers
            preexec_fn=_end_with_starter,
        )


def _end_with_starter() -> None:
    """In the child: Linux sends the server SIGTERM when the thread that started it exits, also after SIGKILL."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Terminate the server and its workers, and then kill them, because vLLM's engine outlives a killed server."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


async def _await_health(server: subprocess.Popen[bytes], url: str, log: Path, start_seconds: float) -> None:
    deadline = time.monotonic() + start_seconds
    # Without the machine's proxy, because the server is local.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        if server.poll() is not None:
            raise SetupError(f"the server ended with status {server.returncode}; {_tail(log)}")
        try:
            with opener.open(url, timeout=5.0):
                return
        except OSError:  # it does not listen yet, or has exited
            pass
        if time.monotonic() > deadline:
            raise SetupError(f"the server was not healthy after {start_seconds:g} s; {_tail(log)}")
        await asyncio.sleep(_POLL_SECONDS)


def _arguments(values: Mapping[str, Any]) -> list[str]:
    arguments = []
    for name, value in values.items():
        if value is False or value is None:
            continue
        arguments.append(f"--{name}")
        if value is not True:
            arguments.append(json.dumps(value) if isinstance(value, dict | list) else str(value))
    return arguments


def _max_tokens(model: str, limits: RolloutLimits) -> int:
    """The tokens that the method's recipe reserves for a sequence, at most the model's context if it is known."""
    reserved = limits.prompt_tokens + limits.response_tokens
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
        readable = (config.get("text_config") or {}).get("max_position_embeddings") or config["max_position_embeddings"]
    except (OSError, ValueError, KeyError, AttributeError):
        return reserved
    return min(reserved, int(readable))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tail(log: Path) -> str:
    """The end of the log, and the last error before it, because the API server's error follows that of the engine."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [match[1] for line in lines[:-_MAX_LOG_LINES] if (match := _ERROR.search(line))]
    cause = f"has {errors[-1][:300]!r} and " if errors else ""
    return f"{log} {cause}ends with: {' / '.join(lines[-_MAX_LOG_LINES:])}" if lines else f"{log} is empty"


# ----------------------------------------------------------------------------------------------- files and images


_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".safetensors", ".bin", ".pt", ".gguf")
"""Suffixes of the files that determine a model's output: config, tokenizer, processor, chat template, weights."""
_DIGITS = 16


def model_digest(model: str) -> str | None:
    """A digest of the names and contents of a model's files, 16 hexadecimal digits; None for a name on the hub.

    All bytes are read, because only the weights differ before and after training. Files in subfolders are ignored,
    which may be other models.

    Args:
        model: folder, file (GGUF) or name.

    Raises:
        UsageError: a file cannot be read.
    """
    path = Path(model)
    if path.is_dir():
        files: Iterable[Path] = (file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    elif path.is_file():
        files = (path,)
    else:
        return None
    return hashlib.sha256("".join(sorted(map(_line, files))).encode()).hexdigest()[:_DIGITS]


def _line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n"
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def envelope_of_model(model: str | None, min_pixels: int | None = None, max_pixels: int | None = None) -> PixelEnvelope:
    """The envelope of a model's image processor; without a model, any size.

    Args:
        model: folder or name on Hugging Face.
        min_pixels, max_pixels: as `data.mm_processor_kwargs` in training; both or neither.

    Raises:
        UsageError: the processor cannot be loaded or is not supported, only one bound is given, or there are bounds
            without a model.
    """
    if model is None:
        if min_pixels is not None or max_pixels is not None:
            raise UsageError("min_pixels and max_pixels are bounds of a processor; name the model as well")
        return PixelEnvelope()
    model = locate_model(model)
    from transformers import AutoImageProcessor

    from verl_video_tools.video import envelope_of

    try:
        processor = AutoImageProcessor.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load a processor from {model!r}: {error}") from error
    return envelope_of(processor, {"min_pixels": min_pixels, "max_pixels": max_pixels})
