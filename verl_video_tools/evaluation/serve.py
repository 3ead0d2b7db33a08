"""A model served by vLLM in a child process for as long as it is asked, sampled as in training."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_video_tools.cli.probes import detect_device
from verl_video_tools.errors import SetupError, UsageError
from verl_video_tools.types import RecipeBudget

COMMAND = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve")
START_SECONDS = 1800.0
"""Time to load a model: one of 72B from a network drive takes many minutes."""
STOP_SECONDS = 30.0
"""Time to end by itself before it is killed."""

_POLL_SECONDS = 0.2
_LOG_LINES_SHOWN = 8
_PR_SET_PDEATHSIG = 1

# As recipes/common.sh sets them for vLLM's CPU build, and for the same reasons (docs/cpu.md).
_CPU_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
}
_CPU_OPTIONS: dict[str, Any] = {"dtype": "float32", "enforce-eager": True}


@contextmanager
def served_model(
    model: str,
    log: Path,
    budget: RecipeBudget,
    options: Mapping[str, Any] | None = None,
    *,
    start_seconds: float = START_SECONDS,
) -> Iterator[str]:
    """Serve a model on a free port of this machine; the server ends with the context, or with this process.

    Args:
        model: folder or name, also the name that it is served under.
        log: file for what the server prints.
        budget: its pictures and its tokens together bound a request, as in the method's recipe.
        options: of `vllm serve`, without dashes; they win over ours. True stands for an option without a value.
        start_seconds: time until the server is healthy.

    Returns:
        The server's base URL.

    Raises:
        UsageError: the log cannot be written.
        SetupError: the server ended before it was healthy, or was not in time; shows the end of its log.
    """
    port = _free_port()
    on_cpu = detect_device() == "cpu"
    values = {
        "host": "127.0.0.1",
        "port": port,
        # Else vLLM samples by the model's own generation_config.json, such as with a penalty on repetition.
        "generation-config": "vllm",
        "limit-mm-per-prompt": {"image": budget.images, "video": 0},
        "max-model-len": _max_tokens(model, budget),
        **(_CPU_OPTIONS if on_cpu else {}),
        **(options or {}),
    }
    environment = ({**_CPU_ENVIRONMENT} if on_cpu else {}) | dict(os.environ)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    except OSError as error:
        raise UsageError(f"cannot write {log}: {error.strerror}") from error
    with output:
        server = subprocess.Popen(
            [*COMMAND, model, *_arguments(values)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # one signal reaches its workers, and the terminal's interrupt only us
            preexec_fn=_die_with_parent,
        )
    try:
        _await_health(server, values["host"], values["port"], log, start_seconds)
        yield f"http://{values['host']}:{values['port']}/v1"
    finally:
        _end(server)


def _await_health(server: subprocess.Popen[bytes], host: Any, port: Any, log: Path, start_seconds: float) -> None:
    deadline = time.monotonic() + start_seconds
    # The machine's proxy must not be asked for its own server.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        if server.poll() is not None:
            raise SetupError(f"the server ended with status {server.returncode}; {_tail(log)}")
        try:
            with opener.open(f"http://{host}:{port}/health", timeout=5.0):
                return
        except OSError:  # not yet, or not any more
            pass
        if time.monotonic() > deadline:
            raise SetupError(f"the server was not healthy after {start_seconds:g} s; {_tail(log)}")
        time.sleep(_POLL_SECONDS)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ask the server and its workers to end, and kill those that do not."""
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(server.pid, number)
        except ProcessLookupError:
            break
        try:
            server.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    server.wait()


def _die_with_parent() -> None:
    """In the child: end when the parent does, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _arguments(values: Mapping[str, Any]) -> list[str]:
    arguments = []
    for name, value in values.items():
        if value is False or value is None:
            continue
        arguments.append(f"--{name}")
        if value is not True:
            arguments.append(json.dumps(value) if isinstance(value, dict | list) else str(value))
    return arguments


def _max_tokens(model: str, budget: RecipeBudget) -> int:
    """What the method's recipe reserves for a sequence, or what the model can read, where that is less and known."""
    wanted = budget.prompt_tokens + budget.response_tokens
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
        known = (config.get("text_config") or {}).get("max_position_embeddings") or config["max_position_embeddings"]
    except (OSError, ValueError, KeyError, AttributeError):
        return wanted
    return min(wanted, int(known))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
    return f"{log} ends with: {' / '.join(lines)}" if lines else f"{log} is empty"
