"""A group's rollouts share a server, and servers differ by at most one shard."""

from __future__ import annotations

from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.verl_plugin.group_router import GroupRouter, RequestId, finish_rollout


def router(num_servers: int) -> GroupRouter:
    return GroupRouter({f"s{number}": f"handle {number}" for number in range(num_servers)}, {})


def group(uid: str, size: int, num_groups: int) -> list[str]:
    return [str(RequestId.of(uid, session_id, size, num_groups)) for session_id in range(size)]


def place(balancer: GroupRouter, ids: list[str]) -> list[str]:
    return [balancer.acquire_server(request_id)[0] for request_id in ids]


def open_rollouts(balancer: GroupRouter) -> list[int]:
    return sorted(balancer.get_status()["open_rollouts"].values())


def test_ids() -> None:
    assert RequestId.parse(str(RequestId.of("a:b_c", 3, 16, 4)))[:4] == ("a:b_c", 3, 16, 4)
    assert RequestId.parse("0123456789abcdef") is None and RequestId.parse("a:b:c:d:e") is None


@pytest.mark.parametrize(
    ("num_groups", "group_size", "num_servers", "servers_per_group"),
    [(3, 16, 2, 1), (16, 16, 8, 1), (16, 16, 64, 4), (3, 5, 7, 3), (4, 2, 64, 2)],  # at most a server for each rollout
)
def test_a_step(num_groups: int, group_size: int, num_servers: int, servers_per_group: int) -> None:
    balancer = router(num_servers)
    placed = [place(balancer, group(f"g{number}", group_size, num_groups)) for number in range(num_groups)]
    assert [len(set(servers)) for servers in placed] == [servers_per_group] * num_groups
    counts = open_rollouts(balancer)
    assert sum(counts) == num_groups * group_size
    assert max(counts) - min(counts) <= -(-group_size // servers_per_group)


def test_a_rollout_stays_where_its_group_is() -> None:
    balancer = router(4)
    ids = group("g", 4, num_groups=8)
    (server_id,) = set(place(balancer, ids))
    for request_id in ids:
        balancer.release_server(server_id, request_id)
    assert set(place(balancer, ids)) == {server_id}
    assert balancer.get_total_inflight() == 4
    assert balancer.acquire_server(ids[0]) == (server_id, f"handle {server_id[1:]}")


def test_refills_go_where_the_fewest_are_open() -> None:
    balancer = router(2)
    first, second = group("first", 8, 2), group("second", 8, 2)
    busy, other = place(balancer, first)[0], place(balancer, second)[0]
    assert busy != other
    for request_id in second[:3]:
        balancer.finish_rollout(request_id)
    assert set(place(balancer, group("refill", 8, 2))) == {other}
    assert open_rollouts(balancer) == [8, 13]


def test_rollouts_between_two_turns_count_as_open() -> None:
    """While a tool runs, no request of a rollout is in flight. Its next turn goes to the same server all the same."""
    balancer = router(8)
    placed = []
    for number in range(8):
        ids = group(f"g{number}", 4, 8)
        servers = place(balancer, ids)
        placed += servers[:1]
        for server_id, request_id in zip(servers, ids, strict=True):
            balancer.release_server(server_id, request_id)
    assert balancer.get_total_inflight() == 0
    assert len(set(placed)) == 8 and open_rollouts(balancer) == [4] * 8


def test_rollouts_of_a_removed_server_move_together() -> None:
    balancer = router(3)
    ids = group("g", 6, num_groups=3)
    (gone,) = set(place(balancer, ids))
    balancer.finish_rollout(ids[0])
    balancer.remove_servers([gone])
    balancer.release_server(gone)  # of a turn that was under way
    assert gone not in balancer.get_all_servers()
    (new,) = set(place(balancer, ids[1:]))
    assert new != gone and open_rollouts(balancer) == [0, 5]
    balancer.add_servers({gone: "again"})
    assert set(place(balancer, ids[1:])) == {new}
    balancer.remove_servers(balancer.get_all_servers())
    with pytest.raises(RuntimeError, match="No available servers"):
        balancer.acquire_server(ids[1])


def test_clearing_places_open_rollouts_anew() -> None:
    balancer = router(2)
    groups = [group(f"g{number}", 4, 2) for number in range(2)]
    for ids in groups:
        place(balancer, ids)
    balancer.finish_rollout(groups[0][0])
    assert balancer.clear_sticky_cache()["cleared_entries"] == 2
    assert open_rollouts(balancer) == [0, 0]
    assert len({tuple(place(balancer, ids[1:])) for ids in groups}) == 2
    assert open_rollouts(balancer) == [3, 4]


def test_other_loops_are_balanced_by_requests() -> None:
    balancer = router(3)
    assert len({balancer.acquire_server(f"id {number}")[0] for number in range(3)}) == 3
    balancer.finish_rollout("id 0")


def test_the_imbalance_is_of_what_was_placed_since() -> None:
    balancer = router(2)
    place(balancer, group("a", 6, 2))
    assert balancer.take_imbalance() == 2.0
    assert balancer.take_imbalance() == 1.0
    place(balancer, group("b", 2, 2))
    place(balancer, group("c", 2, 2))
    assert balancer.take_imbalance() == 2.0  # both went to the server that had less to do


@pytest.mark.slow
@given(st.data())
def test_counts_are_those_of_the_open_rollouts(data: st.DataObject) -> None:
    """Whatever happens: open rollouts are counted once, and end at nothing."""
    balancer = router(data.draw(st.integers(1, 5)))
    groups = [group(f"g{number}", data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))) for number in range(4)]
    running: dict[str, str] = {}
    spare: Counter[str] = Counter()
    for _ in range(data.draw(st.integers(0, 40))):
        request_id = data.draw(st.sampled_from(data.draw(st.sampled_from(groups))))
        match data.draw(st.sampled_from(["ask", "ask", "ask", "end", "clear", "remove", "add"])):
            case "ask":
                server_id, _ = balancer.acquire_server(request_id)
                running[request_id] = server_id
            case "end":
                balancer.finish_rollout(request_id)
            case "clear":
                balancer.clear_sticky_cache()
            case "remove" if len(balancer.get_all_servers()) > 1:
                gone = balancer.get_all_servers()[0]
                balancer.remove_servers([gone])
                spare[gone] += 1
            case "add" if spare:
                back = next(iter(spare))
                del spare[back]
                balancer.add_servers({back: back})
        counts = balancer.get_status()["open_rollouts"]
        assert min(counts.values()) >= 0 and set(counts) == set(balancer.get_all_servers())
    for ids in groups:
        for request_id in ids:
            balancer.finish_rollout(request_id)
    assert open_rollouts(balancer) == [0] * len(balancer.get_all_servers())


def test_a_rollout_that_ends_before_its_group_asks_is_not_open() -> None:
    """Its prompt may be too long for its budget, while its siblings still decode their first frames."""
    balancer = router(2)
    ids = group("a", 4, 2)
    balancer.finish_rollout(ids[3])
    place(balancer, ids[:3])
    assert sorted(open_rollouts(balancer)) == [0, 3]
    for request_id in ids[:3]:
        balancer.finish_rollout(request_id)
    assert open_rollouts(balancer) == [0, 0]
    # A group none of whose rollouts ever asks leaves nothing behind.
    for request_id in ids:
        balancer.finish_rollout(request_id)
    place(balancer, group("a", 4, 2))
    assert sorted(open_rollouts(balancer)) == [0, 4]


def test_only_our_router_is_told_of_an_end() -> None:
    told: dict[str, list[str]] = defaultdict(list)
    ours: Any = SimpleNamespace(finish_rollout=SimpleNamespace(remote=told["ours"].append))
    finish_rollout(SimpleNamespace(_load_balancer=ours), "id")
    finish_rollout(SimpleNamespace(_load_balancer=SimpleNamespace()), "id")
    finish_rollout(SimpleNamespace(), "id")
    assert told["ours"] == ["id"]
