"""Which of a run's Ray actors are dead, and on which node they were.

A lost agent loop worker takes its rollouts along, and verl waits for them for ever. Ray tells of a death only whoever
has a call pending at the actor, so each actor always has one: it answers with its node's address as soon as the actor
has time. A busy actor answers late, which is no fault; a dead one makes the call fail.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.pages import page

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


def storage_units(backend: Any) -> list[Any]:
    """Handles of TransferQueue's storage actors, which hold the batch; it has no function that gives them.

    Args:
        backend: verl's `transfer_queue.backend`. Other backends than SimpleStorage keep no actors of a known name.

    Raises:
        UsageError: they belong to another run. TransferQueue's controller has one name per cluster, and a second run
            silently takes that of the first.
    """
    if backend.storage_backend != "SimpleStorage":
        return []
    number = backend.SimpleStorage.num_data_storage_units
    try:
        return [ray.get_actor(f"TransferQueueStorageUnit#{unit}") for unit in range(number)]
    except ValueError as error:  # names of other actors than the controller are known within their own run only
        raise UsageError(
            "another run uses this Ray cluster, and the two would mix their rollouts in one TransferQueue: wait until "
            f"it has ended, or give each run a cluster of its own ({page('cluster')})"
        ) from error


def queue_controller() -> list[Any]:
    """Handle of TransferQueue's controller, which every put and get of a run asks first, and without a time limit; none
    where TransferQueue has not been started."""
    try:
        return [ray.get_actor("TransferQueueController", namespace="transfer_queue")]
    except ValueError:
        return []


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MAX_CAUSE_CHARACTERS].rstrip(".")
