"""Which inference server a rollout goes to: all of a group to one, so that it reads the group's initial frames once.

verl's balancer spreads the rollouts of a question over all servers. Each of them would then encode and prefill the same
initial frames. Here a group is cut into as few shards as keep every server busy, ceil(servers / groups); each shard
goes to the server with the fewest open rollouts. An open rollout counts from the moment at which its shard is placed
until it has ended, so servers differ by at most one shard.

Selected by the trainer `video_tools` through verl's option `rollout.router_config_path`. Requests of agent loops that
are not ours have other ids; each is then placed alone, and open while the server answers it.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

_MAX_GROUPS = 10_000
"""Groups that are remembered. Those whose worker died never end."""


class RequestId(NamedTuple):
    """What the router knows about a rollout: the id of all its requests.

    Attributes:
        group_size: rollouts of its group.
        num_groups: groups of a step, which run at once.
    """

    uid: str
    session_id: int
    group_size: int
    num_groups: int
    unique: str

    def __str__(self) -> str:
        return ":".join(map(str, tuple(self)))

    @classmethod
    def of(cls, uid: str, session_id: int, group_size: int, num_groups: int) -> RequestId:
        """For a rollout that starts now. A group that runs again gets other ids."""
        return cls(uid, session_id, max(group_size, session_id + 1), max(1, num_groups), uuid4().hex)

    @classmethod
    def parse(cls, text: str) -> RequestId | None:
        """None for an id of another agent loop."""
        parts = text.rsplit(":", 4)
        if len(parts) != 5 or not all(number.isdecimal() for number in parts[1:4]):
            return None
        session_id, group_size, num_groups = map(int, parts[1:4])
        return cls(parts[0], session_id, group_size, num_groups, parts[4])


@dataclass
class _Shard:
    """Rollouts of a group that go to one server.

    Attributes:
        open: numbers of those that have not ended, whether they have started or not.
    """

    open: set[int] = field(default_factory=set)
    server_id: str | None = None


class GroupRouter:
    """verl's `RequestLoadBalancer` for groups. One Ray actor of a run.

    Args:
        servers: inference servers by their names.
        config: the YAML file that names this class.
    """

    def __init__(self, servers: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        self._servers = dict(servers)
        self._inflight: Counter[str] = Counter(dict.fromkeys(servers, 0))
        self._open: Counter[str] = Counter(dict.fromkeys(servers, 0))
        self._placed: Counter[str] = Counter()
        self._groups: OrderedDict[tuple[str, int], list[_Shard]] = OrderedDict()
        """Shards of the groups with open rollouts, by uid and size."""

    # ----------------------------------------------------------------------------------------------------- requests

    def acquire_server(self, request_id: str) -> tuple[str, Any]:
        """The server for the next turn of a rollout.

        Raises:
            RuntimeError: no server is left (verl's clients look for this text).
        """
        if not self._servers:
            raise RuntimeError("No available servers in load balancer")
        request = RequestId.parse(request_id)
        server_id = self._least(self._inflight) if request is None else self._place(self._open_shard(request))
        self._inflight[server_id] += 1
        return server_id, self._servers[server_id]

    def release_server(self, server_id: str, request_id: str | None = None) -> None:
        """A turn has ended."""
        if self._inflight[server_id] > 0:
            self._inflight[server_id] -= 1

    def finish_rollout(self, request_id: str) -> None:
        """A rollout has ended, however it did."""
        if (request := RequestId.parse(request_id)) is None:
            return
        group = request.uid, request.group_size
        if group not in self._groups:  # it ends before any of its group has sent a request
            self._split(request)
        for shard in self._groups[group]:
            if request.session_id in shard.open:
                shard.open.discard(request.session_id)
                if shard.server_id is not None:
                    self._open[shard.server_id] -= 1
        if not any(shard.open for shard in self._groups[group]):
            del self._groups[group]

    def require_acquire_fields(self) -> list[str]:
        return []

    def require_release_fields(self) -> list[str]:
        return []

    # ------------------------------------------------------------------------------------------------------- servers

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        for server_id, handle in servers.items():
            self._servers[server_id] = handle
            self._inflight[server_id] = self._open[server_id] = 0

    def remove_servers(self, server_ids: Sequence[str]) -> None:
        """Their rollouts go on elsewhere, each shard as a whole."""
        for server_id in server_ids:
            for counts in (self._servers, self._inflight, self._open):
                counts.pop(server_id, None)
        for shard in self._placed_shards():
            if shard.server_id in server_ids:
                shard.server_id = None

    def get_all_servers(self) -> list[str]:
        return list(self._servers)

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Place every open shard anew at its next request."""
        placed = self._placed_shards()
        for shard in placed:
            shard.server_id = None
        self._open = Counter(dict.fromkeys(self._servers, 0))
        return {"cleared_entries": len(placed), "server_loads": dict(self._inflight)}

    # -------------------------------------------------------------------------------------------------------- status

    def get_status(self) -> dict[str, Any]:
        return {
            "servers": dict(self._inflight),
            "total_inflight": self.get_total_inflight(),
            "active_servers": len(self._servers),
            "registered_handles": list(self._servers),
            "open_rollouts": dict(self._open),
        }

    def get_total_inflight(self) -> int:
        return sum(self._inflight.values())

    def take_imbalance(self) -> float:
        """Rollouts placed on the busiest server since the last call, over the mean of all; 1 if there were none."""
        placed, self._placed = self._placed, Counter()
        mean = sum(placed.values()) / max(1, len(self._servers))
        return max(placed.values()) / mean if mean else 1.0

    # ------------------------------------------------------------------------------------------------------ internals

    def _open_shard(self, request: RequestId) -> _Shard:
        for shard in self._groups.get((request.uid, request.group_size), ()):
            if request.session_id in shard.open:
                return shard
        self._split(request)
        return self._open_shard(request)

    def _split(self, request: RequestId) -> None:
        """Split the group of a rollout into shards, for as many servers as there are now."""
        group = request.uid, request.group_size
        self._forget(group)  # of an earlier attempt at it
        num_shards = min(-(-len(self._servers) // request.num_groups), request.group_size)
        shards = [_Shard() for _ in range(max(1, num_shards))]
        for session_id in range(request.group_size):
            shards[session_id * len(shards) // request.group_size].open.add(session_id)
        self._groups[group] = shards
        if len(self._groups) > _MAX_GROUPS:
            self._forget(next(iter(self._groups)))

    def _placed_shards(self) -> list[_Shard]:
        return [shard for shards in self._groups.values() for shard in shards if shard.server_id is not None]

    def _place(self, shard: _Shard) -> str:
        if shard.server_id is None:
            shard.server_id = self._least(self._open)
            self._open[shard.server_id] += len(shard.open)
            self._placed[shard.server_id] += len(shard.open)
        return shard.server_id

    def _least(self, counts: Mapping[str, int]) -> str:
        """The server with the lowest count; one of several by chance, as verl does."""
        fewest = min(counts[server_id] for server_id in self._servers)
        return random.choice([server_id for server_id in self._servers if counts[server_id] == fewest])

    def _forget(self, group: tuple[str, int]) -> None:
        for shard in self._groups.pop(group, ()):
            if shard.server_id is not None:
                self._open[shard.server_id] -= len(shard.open)


def finish_rollout(server_manager: Any, request_id: str) -> None:
    """Report the end of a rollout to the router of a run, unless the router is verl's own.

    Args:
        server_manager: verl's `LLMServerClient`, which has no call for it.
    """
    finish = getattr(getattr(server_manager, "_load_balancer", None), "finish_rollout", None)
    if finish is not None:
        finish.remote(request_id)
