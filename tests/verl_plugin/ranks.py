"""Processes of their own that need not import verl: they are forked from one that has, once for each test process.

To import verl, torch and transformers takes a core for five seconds or more, and ranks of the tiny model little else.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from torch.distributed import TCPStore

REPO = Path(__file__).parents[2]
_ENVIRONMENT = {"VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}


@cache
def warm() -> ForkServerContext:
    """Makes processes that have imported verl with our plugin, and the modules of `training`, for the CPU."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.verl_plugin.training"])
    with pytest.MonkeyPatch.context() as monkeypatch:  # the environment of all that is forked from it
        for name, value in _ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        ensure_running()
    return context


def run_ranks(module: str, num_ranks: int, *arguments: str, timeout_seconds: float) -> None:
    """Call `main()` of a module in training ranks on the CPU, as `torchrun -m MODULE ARGUMENTS` runs it as a program.

    Raises:
        AssertionError: a rank fails or does not end in time; with the end of what it printed.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # like torchrun's: no port is raced for
    run_apart(
        _run_rank,
        *((rank, num_ranks, store.port, module, arguments) for rank in range(num_ranks)),
        timeout_seconds=timeout_seconds,
    )


def run_apart(target: Callable[..., None], *calls: tuple[Any, ...], timeout_seconds: float) -> None:
    """Call a function of a module with each of these arguments at the same time, each in a warm process of its own.

    Raises:
        AssertionError: one fails or does not end in time; with the end of what it printed.
    """
    ends = time.monotonic() + timeout_seconds
    with TemporaryDirectory(prefix="apart_") as folder:
        logs = [Path(folder) / str(number) for number in range(len(calls))]
        processes = [
            warm().Process(target=_logged, args=(str(log), target, arguments), daemon=True)
            for log, arguments in zip(logs, calls, strict=True)
        ]
        for process in processes:
            process.start()
        try:
            running = {process.sentinel: process for process in processes}
            while running:
                ended = wait(running, max(0.0, ends - time.monotonic()))
                failed = [running[end] for end in ended if running[end].exitcode]  # the others would wait for it
                if failed or not ended:
                    break
                for end in ended:
                    del running[end]
        finally:
            for process in processes:
                process.kill()
                process.join()
        told = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-4000:]}" for log in logs if log.exists())
        assert not running, f"failed, or not done within {timeout_seconds:g} s\n{told}"


def _logged(log: str, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    with open(log, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    target(*arguments)


def _run_rank(rank: int, num_ranks: int, port: int, module: str, arguments: tuple[str, ...]) -> None:
    os.environ |= {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
        **{"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"},
    }
    sys.argv = [module, *arguments]
    importlib.import_module(module).main()
