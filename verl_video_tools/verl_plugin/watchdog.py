"""Ends a run of which a part is dead, and says on the console what a long step is doing.

When vLLM's engine process dies, a weight update waits for it for ever and verl says nothing; the same holds for the
rollouts of a lost node. A thread runs checks, and at the first fault that lasts the process is ended with a message
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
    """Something that the watchdog checks again and again. It must answer within seconds."""

    def fault(self) -> str | None:
        """What is dead for good; None while all is well, or may be so again."""
        ...

    def is_suspicious(self) -> bool:
        """Whether something does not answer now; it may recover."""
        ...


class Health(StrEnum):
    """What an inference server says of itself."""

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


_SERVER_FAULTS = {
    Health.SILENT: "the inference server at {address} has not answered for {seconds:.0f} s: it is stuck.",
    Health.UNHEALTHY: (
        "the inference server at {address} has not been healthy for {seconds:.0f} s: its engine process is dead. Look "
        "for its last words above (out of memory?)."
    ),
}


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
        self._limits = {Health.UNHEALTHY: grace_seconds, Health.SILENT: silence_seconds}
        self._timeout_seconds = timeout_seconds
        self._since: dict[tuple[str, Health], float] = {}

    def fault(self) -> str | None:
        round_start = time.monotonic()
        for address, health_now in zip(self._addresses, self._all_health(), strict=True):
            if health_now is not Health.SILENT:  # a silent server does not say that it has recovered
                self._since.pop((address, Health.SILENT), None)
            if health_now is Health.HEALTHY:
                self._since.pop((address, Health.UNHEALTHY), None)
                continue
            seconds = time.monotonic() - self._since.setdefault((address, health_now), round_start)
            if seconds > self._limits[health_now]:
                return _SERVER_FAULTS[health_now].format(address=address, seconds=seconds)
        return None

    def is_suspicious(self) -> bool:
        return Health.UNHEALTHY in self._all_health()

    def _all_health(self) -> list[Health]:
        """All at once: silent servers must not keep the others waiting."""
        with ThreadPoolExecutor(max_workers=max(1, len(self._addresses))) as pool:
            return list(pool.map(lambda address: health(address, self._timeout_seconds), self._addresses))


class Watchdog(threading.Thread):
    """A daemon thread that runs checks and reports progress.

    A check or a report that raises has no result in that round; it is logged, and the watch goes on.

    Args:
        checks: what is watched; the message names all faults of a round.
        progress: one line that says what the run is doing now.
        grace_seconds: in which a check turns its suspicion into a fault.
        report_seconds: how often `progress` is printed.
        interval_seconds: pause between two rounds of checks.
        on_death: called with the message; ends the process by default.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        progress: Callable[[], str],
        grace_seconds: float = 60.0,
        report_seconds: float = 30.0,
        interval_seconds: float = 5.0,
        on_death: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(name="video-tools-watchdog", daemon=True)
        self._checks = list(checks)
        self._progress = progress
        self._grace_seconds = grace_seconds
        self._report_seconds = report_seconds
        self._interval_seconds = interval_seconds
        self._on_death = on_death or end_process
        self._stopped = threading.Event()
        self._rounds = threading.Condition()
        self._num_begun = self._num_ended = 0

    def stop(self) -> None:
        self._stopped.set()

    def wait_for_verdict(self, is_lost: bool = False) -> None:
        """Until the process has been ended, or nothing dead was found that could be the cause of a failure.

        Args:
            is_lost: Ray has said that an actor is out of reach.
        """
        self.wait_for_round()
        if is_lost or any(check.is_suspicious() for check in self._checks):
            self.join(self._grace_seconds)
            self.wait_for_round()

    def wait_for_round(self) -> None:
        """Until a round that begins from now on has ended; on a busy machine that takes longer than the pause."""
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
                self._guarded(lambda: print(f"[verl_video_tools] {self._progress()}", flush=True))

    def _guarded(self, work: Callable[[], Result]) -> Result | None:
        try:
            return work()
        except Exception:
            logger.warning("a check of the watchdog failed; the watch goes on", exc_info=True)
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
        label: its name in messages.
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
    """Ray's actors.

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
        watched = tuple(self._watched)  # the trainer's thread may add more meanwhile
        dead = [actor for actor in watched if self._is_dead(actor)]
        if not self._is_announced and all(actor.address for actor in watched):
            self._is_announced = True
            for address, actors in sorted(_by_node(watched).items()):
                kinds = Counter(actor.kind for actor in actors)
                line = ", ".join(f"{number} x {kind}" for kind, number in kinds.items())
                print(f"[verl_video_tools] node {address}: {line}", flush=True)
        if not dead:
            return None
        lost = "; ".join(
            f"{', '.join(actor.label for actor in actors)} on node {address or 'of unknown address'}"
            for address, actors in _by_node(dead).items()
        )
        return f"lost {lost}. Ray says: {dead[0].cause}."

    def is_suspicious(self) -> bool:
        return any(actor.lost_since is not None for actor in tuple(self._watched))

    def _is_dead(self, actor: _Watched) -> bool:
        if actor.pending is None:
            actor.pending = actor.handle.__ray_call__.remote(node_address)
        answered, _ = ray.wait([actor.pending], timeout=0)
        if not answered:
            return self._is_overdue(actor)
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


def _by_node(actors: Iterable[_Watched]) -> dict[str, list[_Watched]]:
    nodes: dict[str, list[_Watched]] = defaultdict(list)
    for actor in actors:
        nodes[actor.address].append(actor)
    return nodes


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MAX_CAUSE_CHARACTERS].rstrip(".")


def watched_actors(trainer: Any) -> dict[str, list[Any]]:
    """Handles by kind; one process may be training worker, reference and engine worker at once, and has the first kind.

    Args:
        trainer: verl's V1 trainer, once it has started all actors. What a configuration does without (critic, reward
            model, teacher) it lacks, or has as None.
    """
    managers = trainer._rollout_server_managers()  # in the mode `separate_async` there are two
    replicas = [replica for manager in managers for replica in manager.get_replicas()]
    rewards = trainer.reward_loop_manager
    teachers = getattr(getattr(trainer, "teacher_model_manager", None), "teacher_model_managers", {})
    handles_by_kind = {
        "training worker": trainer.actor_rollout_wg.workers,
        "inference server": _servers(replicas),
        "reward worker": rewards.reward_loop_workers,
        "router": [getattr(manager, "global_load_balancer", None) for manager in managers],
        "engine worker": [worker for replica in replicas for worker in _members(replica, "workers")],
        "critic worker": _members(getattr(trainer, "critic_wg", None), "workers"),
        "reference worker": _members(getattr(trainer, "ref_policy_wg", None), "workers"),
        "reward model's server": _servers(_members(getattr(rewards, "reward_model_manager", None), "rollout_replicas")),
        "teacher's server": [
            server for teacher in teachers.values() for server in _servers(_members(teacher, "rollout_replicas"))
        ],
    }
    kind_of: dict[Any, str] = {}
    for kind, handles in handles_by_kind.items():
        for handle in handles:
            if handle is not None:
                kind_of.setdefault(handle, kind)
    return {kind: [handle for handle in kind_of if kind_of[handle] == kind] for kind in handles_by_kind}


def _members(group: Any, name: str) -> list[Any]:
    return list(getattr(group, name, None) or ())


def _servers(replicas: Iterable[Any]) -> list[Any]:
    return [server for replica in replicas for server in replica.servers]


# ----------------------------------------------------------------------------------------------------------- lost nodes


_NODE_DEATH_SECONDS = 30.0
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
    ray.init(log_to_driver=False, logging_level="ERROR")
    end = time.monotonic() + _NODE_DEATH_SECONDS
    while not (lost := lost_nodes(ray.nodes())) and time.monotonic() < end:
        time.sleep(1)
    for address, cause in lost.items():
        print(
            f"[verl_video_tools] node {address} is dead: {cause}. Bring it back, and start the same command again to "
            "resume from the last checkpoint."
        )


if __name__ == "__main__":
    main()
