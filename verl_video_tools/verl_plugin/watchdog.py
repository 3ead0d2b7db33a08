"""Ends a run of which a part is dead, and says on the console what a long step is doing.

When vLLM's engine process dies, a weight update waits for it for ever and verl says nothing; the same holds for the
rollouts of a lost node. A thread asks its checks, and at the first fault that lasts the process is ended with a message
and exit code 1. Only a process exit gets out: the main thread may hang in native code.

A lost agent loop worker takes its rollouts along, and verl waits for them for ever. Ray tells of a death only whoever
has a call pending at the actor, so each actor always has one: it answers with its node's address as soon as the actor
has time. A busy actor answers late, which is no fault; a dead one makes the call fail. The trainer itself runs in
verl's task runner, whose death ends the driver's own call. Checkpoint engines are no actors: weights go from the
training workers to the workers of the replicas.
"""

from __future__ import annotations

import http.client
import logging
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

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
    UNHEALTHY = "unhealthy"
    """It refuses the connection, or says that its engine is dead."""
    SILENT = "silent"
    """No answer in time. vLLM processes images in the thread that answers, so a busy server may be silent long."""


def health(address: str, timeout_seconds: float = 10.0) -> Health:
    """What the server at "host:port" answers to `GET /health`: 200 if it is healthy."""
    connection = http.client.HTTPConnection(address, timeout=timeout_seconds)
    try:
        connection.request("GET", "/health")
        return Health.HEALTHY if connection.getresponse().status == 200 else Health.UNHEALTHY
    except TimeoutError:
        return Health.SILENT
    except (OSError, http.client.HTTPException):
        return Health.UNHEALTHY
    finally:
        connection.close()


class ServerCheck:
    """Inference servers: verl's vLLM server answers `GET /health` from its engine's state.

    Args:
        addresses: "host:port" of every server.
        grace_seconds: how long an engine may be unhealthy before it counts as dead.
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
        self._unhealthy_since: dict[str, float] = {}
        self._silent_since: dict[str, float] = {}

    def fault(self) -> str | None:
        asked_at = time.monotonic()
        for address, health_now in zip(self._addresses, self._ask_all(), strict=True):
            if health_now is Health.SILENT:
                silent_seconds = time.monotonic() - self._silent_since.setdefault(address, asked_at)
                if silent_seconds > self._silence_seconds:
                    return (
                        f"the inference server at {address} has not answered for {silent_seconds:.0f} s: it is stuck."
                    )
                continue  # nor does it say that it has recovered
            self._silent_since.pop(address, None)
            if health_now is Health.HEALTHY:
                self._unhealthy_since.pop(address, None)
                continue
            unhealthy_seconds = time.monotonic() - self._unhealthy_since.setdefault(address, asked_at)
            if unhealthy_seconds > self._grace_seconds:
                return (
                    f"the inference server at {address} has not been healthy for {unhealthy_seconds:.0f} s: "
                    "its engine process is dead. Look for its last words above (out of memory?)."
                )
        return None

    def any_unhealthy(self) -> bool:
        """Whether a server refuses now, or says that its engine is dead; it may recover."""
        return Health.UNHEALTHY in self._ask_all()

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


_MAX_CAUSE_CHARACTERS = 400


def node_address(actor: Any) -> str:
    """Runs inside of an actor: the IP address of its node."""
    return str(ray.util.get_node_ip_address())


@dataclass
class _Watched:
    """One actor.

    Attributes:
        label: what it is called in messages.
        pending: the call that it has not answered yet.
        address: of its node; empty before its first answer.
        lost_since: when the connection to it broke (`time.monotonic`), None while it stands.
    """

    label: str
    kind: str
    handle: Any
    pending: Any = None
    address: str = ""
    lost_since: float | None = None
    cause: str = field(default="", repr=False)


class ActorCheck:
    """A check of `verl_plugin.watchdog.Watchdog`.

    Args:
        grace_seconds: how long the connection to an actor may be broken before it counts as dead. One of which Ray
            knows that it is dead has no grace.
    """

    def __init__(self, grace_seconds: float = 60.0) -> None:
        self._watched: list[_Watched] = []
        self._grace_seconds = grace_seconds
        self._is_announced = True

    def add(self, kind: str, handles: Sequence[Any]) -> None:
        """Watch these actors, too; `kind` says what they are, in the singular."""
        self._watched += [_Watched(f"{kind} {number}", kind, handle) for number, handle in enumerate(handles)]

    def announce(self) -> None:
        """Print once, as soon as all actors have answered, how many of which kind run where."""
        self._is_announced = False

    def fault(self) -> str | None:
        """The dead actors with their nodes and the cause that Ray gives; None where there are none."""
        watched = tuple(self._watched)
        dead = [actor for actor in watched if self._is_dead(actor)]
        if not self._is_announced and all(actor.address for actor in watched):
            self._is_announced = True
            for line in self.placement():
                print(f"[verl_video_tools] {line}", flush=True)
        if not dead:
            return None
        by_node = defaultdict(list)
        for actor in dead:
            by_node[actor.address or "of unknown address"].append(actor.label)
        lost = "; ".join(f"{', '.join(labels)} on node {address}" for address, labels in by_node.items())
        return f"lost {lost}. Ray says: {dead[0].cause}."

    def any_lost(self) -> bool:
        """Whether the connection to an actor is broken now; it may come back."""
        return any(actor.lost_since is not None for actor in tuple(self._watched))

    def placement(self) -> list[str]:
        """A line per node: its address, and how many actors of which kind have answered from there."""
        by_node: dict[str, Counter[str]] = defaultdict(Counter)
        for actor in self._watched:
            if actor.address:
                by_node[actor.address][actor.kind] += 1
        return [
            f"node {address}: {', '.join(f'{number} x {kind}' for kind, number in kinds.items())}"
            for address, kinds in sorted(by_node.items())
        ]

    def _is_dead(self, actor: _Watched) -> bool:
        if actor.pending is None:
            actor.pending = actor.handle.__ray_call__.remote(node_address)
        answered, _ = ray.wait([actor.pending], timeout=0)
        if not answered:
            return actor.lost_since is not None and self._is_overdue(actor)
        pending, actor.pending = actor.pending, None
        try:
            actor.address, actor.lost_since = ray.get(pending), None
        except ActorUnavailableError as error:  # it may come back; Ray turns this into a death if it does not
            actor.cause = _one_line(error)
            actor.lost_since = actor.lost_since or time.monotonic()
            return self._is_overdue(actor)
        except RayTaskError:  # it lives, though it could not say where
            actor.lost_since = None
        except RayError as error:  # died, killed for memory, node lost
            actor.cause = _one_line(error)
            return True
        return False

    def _is_overdue(self, actor: _Watched) -> bool:
        return actor.lost_since is not None and time.monotonic() - actor.lost_since > self._grace_seconds


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MAX_CAUSE_CHARACTERS].rstrip(".")


def watched_actors(trainer: Any) -> dict[str, list[Any]]:
    """Handles by kind, each in one kind only; to be asked once verl's trainer has started them all.

    Args:
        trainer: verl's V1 trainer. What a configuration does without (critic, reward model, teacher) it lacks, or has
            as None.
    """
    managers = trainer._rollout_server_managers()  # in the mode `separate_async` there are two
    replicas = [replica for manager in managers for replica in manager.get_replicas()]
    rewards = trainer.reward_loop_manager
    teachers = getattr(getattr(trainer, "teacher_model_manager", None), "teacher_model_managers", {})
    found = {
        "training worker": trainer.actor_rollout_wg.workers,
        "inference server": [server for replica in replicas for server in replica.servers],
        "reward worker": rewards.reward_loop_workers,
        "router": [getattr(manager, "global_load_balancer", None) for manager in managers],
        "engine worker": [worker for replica in replicas for worker in getattr(replica, "workers", None) or ()],
        "critic worker": _workers(trainer, "critic_wg"),
        "reference worker": _workers(trainer, "ref_policy_wg"),
        "reward model's server": _servers(getattr(rewards, "reward_model_manager", None)),
        "teacher's server": [server for teacher in teachers.values() for server in _servers(teacher)],
    }
    seen: set[Any] = set()
    return {kind: _new(handles, seen) for kind, handles in found.items()}


def _workers(trainer: Any, group: str) -> list[Any]:
    return list(getattr(getattr(trainer, group, None), "workers", None) or ())


def _servers(manager: Any) -> list[Any]:
    return [server for replica in getattr(manager, "rollout_replicas", None) or () for server in replica.servers]


def _new(handles: Iterable[Any], seen: set[Any]) -> list[Any]:
    """Those not seen before: one process may be training worker, reference and engine worker at once."""
    new = [handle for handle in dict.fromkeys(handles) if handle is not None and handle not in seen]
    seen.update(new)
    return new


# ----------------------------------------------------------------------------------------------------------- lost nodes


_PATIENCE_SECONDS = 30.0
"""By then Ray has noticed that a node's processes are gone: five health checks, three seconds apart."""


def lost_nodes(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Cause of death by address, of addresses where nothing lives any more.

    Args:
        nodes: as `ray.nodes()` gives them, those that died long ago included.
    """
    alive = {node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    return {
        node["NodeManagerAddress"]: node.get("DeathReasonMessage") or "no cause given"
        for node in nodes
        if node["NodeManagerAddress"] not in alive
    }


def main() -> None:
    import ray

    ray.init(log_to_driver=False, logging_level="ERROR")
    end = time.monotonic() + _PATIENCE_SECONDS
    while not (lost := lost_nodes(ray.nodes())) and time.monotonic() < end:
        time.sleep(1)
    for address, cause in lost.items():
        print(
            f"[verl_video_tools] node {address} is dead: {cause}. Bring it back, and start the same command again to "
            "resume from the last checkpoint."
        )


if __name__ == "__main__":
    main()
