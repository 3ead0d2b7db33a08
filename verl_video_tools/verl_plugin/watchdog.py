"""Ends a run of which a part is dead, and says on the console what a long step is doing.

When vLLM's engine process dies, a weight update waits for it for ever and verl says nothing; the same holds for the
rollouts of a lost node. A thread asks its checks, and at the first fault that lasts the process is ended with a message
and exit code 1. Only a process exit gets out: the main thread may hang in native code.
"""

from __future__ import annotations

import http.client
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Protocol, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_EXIT_DELAY_SECONDS = 3.0
"""Lets Ray forward the message to the driver's console before the process is gone."""
_ROUND_LIMIT_SECONDS = 60.0
"""For a round that somebody waits for, the pause before it included."""
_ADVICE = "Start the same command again to resume from the last checkpoint."


class Check(Protocol):
    """Something that the watchdog asks again and again. It must answer within seconds."""

    def fault(self) -> str | None:
        """What is dead for good; None while all is well, or may be so again."""
        ...


class Health(StrEnum):
    """What an inference server tells of itself."""

    HEALTHY = "healthy"
    SICK = "sick"
    """It refuses the connection, or says that its engine is dead."""
    SILENT = "silent"
    """No answer in time. vLLM processes images in the thread that answers, so a busy server may be silent long."""


def health(address: str, timeout_seconds: float = 10.0) -> Health:
    """What the server at "host:port" answers to `GET /health`: 200 if it is healthy."""
    connection = http.client.HTTPConnection(address, timeout=timeout_seconds)
    try:
        connection.request("GET", "/health")
        return Health.HEALTHY if connection.getresponse().status == 200 else Health.SICK
    except TimeoutError:
        return Health.SILENT
    except (OSError, http.client.HTTPException):
        return Health.SICK
    finally:
        connection.close()


class ServerCheck:
    """Inference servers: verl's vLLM server answers `GET /health` from its engine's state.

    Args:
        addresses: "host:port" of every server.
        grace_seconds: sickness after which an engine counts as dead.
        silence_seconds: silence after which a server counts as stuck.
        timeout_seconds: that one answer may take.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        grace_seconds: float = 60.0,
        silence_seconds: float = 1800.0,
        timeout_seconds: float = 10.0,
    ) -> None:
        self._addresses = list(addresses)
        self._grace_seconds = grace_seconds
        self._silence_seconds = silence_seconds
        self._timeout_seconds = timeout_seconds
        self._sick_since: dict[str, float] = {}
        self._silent_since: dict[str, float] = {}

    def fault(self) -> str | None:
        asked = time.monotonic()
        for address, found in zip(self._addresses, self._ask_all(), strict=True):
            if found is Health.SILENT:
                silent_seconds = time.monotonic() - self._silent_since.setdefault(address, asked)
                if silent_seconds > self._silence_seconds:
                    return (
                        f"the inference server at {address} has not answered for {silent_seconds:.0f} s: it is stuck."
                    )
                continue  # nor does it say that it has recovered
            self._silent_since.pop(address, None)
            if found is Health.HEALTHY:
                self._sick_since.pop(address, None)
                continue
            sick_seconds = time.monotonic() - self._sick_since.setdefault(address, asked)
            if sick_seconds > self._grace_seconds:
                return (
                    f"the inference server at {address} has not been healthy for {sick_seconds:.0f} s: "
                    "its engine process is dead. Look for its last words above (out of memory?)."
                )
        return None

    def any_sick(self) -> bool:
        """Whether a server refuses now, or says that its engine is dead; it may recover."""
        return Health.SICK in self._ask_all()

    def _ask_all(self) -> list[Health]:
        """All at once: silent servers must not keep the others waiting."""
        with ThreadPoolExecutor(max_workers=max(1, len(self._addresses))) as pool:
            return list(pool.map(lambda address: health(address, self._timeout_seconds), self._addresses))


class Watchdog(threading.Thread):
    """A daemon thread that asks checks and reports progress.

    A check or a report that raises finds nothing in that round; it is logged, counted, and the watch goes on.

    Args:
        checks: what is watched; all that a round of them finds goes into the message.
        progress: one line that says what the run is doing now.
        report_seconds: how often `progress` is printed.
        interval_seconds: pause between two rounds of checks.
        on_death: called with the message; ends the process by default.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        progress: Callable[[], str],
        report_seconds: float = 30.0,
        interval_seconds: float = 5.0,
        on_death: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(name="video-tools-watchdog", daemon=True)
        self._checks = list(checks)
        self._progress = progress
        self._report_seconds = report_seconds
        self._interval_seconds = interval_seconds
        self._on_death = on_death or end_process
        self._stopped = threading.Event()
        self._rounds = threading.Condition()
        self._num_begun = self._num_ended = 0
        self.num_surprises = 0
        """Checks and reports that have raised."""

    def stop(self) -> None:
        self._stopped.set()

    def wait_for_round(self) -> None:
        """Until all that is dead now has been asked; on a busy machine the answers take longer than the pause."""
        with self._rounds:
            next_round = self._num_begun + 1
            self._rounds.wait_for(lambda: self._num_ended >= next_round, _ROUND_LIMIT_SECONDS)

    def run(self) -> None:
        last_report = time.monotonic()
        while not self._stopped.wait(self._interval_seconds):
            with self._rounds:
                self._num_begun += 1
            try:
                faults = [fault for check in self._checks if (fault := self._guarded(check.fault))]
                if faults and not self._stopped.is_set():
                    self._on_death(" ".join([*faults, _ADVICE]))
                    return
            finally:
                with self._rounds:
                    self._num_ended = self._num_begun
                    self._rounds.notify_all()
            if time.monotonic() - last_report >= self._report_seconds:
                last_report = time.monotonic()
                self._guarded(self._report)

    def _report(self) -> None:
        surprises = f" (the watchdog failed {self.num_surprises} times, see the log)" if self.num_surprises else ""
        print(f"[verl_video_tools] {self._progress()}{surprises}", flush=True)

    def _guarded(self, work: Callable[[], Result]) -> Result | None:
        try:
            return work()
        except Exception:
            self.num_surprises += 1
            logger.warning("the watchdog goes on after surprise %s", self.num_surprises, exc_info=True)
            return None


def end_process(message: str) -> None:
    """Print `message` and leave with exit code 1, whatever the other threads are waiting for."""
    try:
        print(f"[verl_video_tools] RUN ENDED: {message}", file=sys.stderr, flush=True)
        time.sleep(_EXIT_DELAY_SECONDS)
    finally:  # also where nobody reads standard error any more
        os._exit(1)
