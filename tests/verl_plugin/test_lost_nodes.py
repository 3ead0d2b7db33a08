"""Which of the nodes that Ray lists are lost to the cluster."""

from __future__ import annotations

from verl_video_tools.verl_plugin.watchdog import lost_nodes


def node(address: str, alive: bool, cause: str = "") -> dict[str, object]:
    return {"NodeManagerAddress": address, "Alive": alive, "DeathReasonMessage": cause}


def test_dead_nodes_are_lost_unless_their_machine_is_back() -> None:
    nodes = [
        node("10.0.0.1", True),
        node("10.0.0.2", False, "health check failed"),
        node("10.0.0.3", False, "health check failed"),
        node("10.0.0.3", True),
        node("10.0.0.4", False),
    ]
    assert lost_nodes(nodes) == {"10.0.0.2": "health check failed", "10.0.0.4": "no cause given"}
    assert lost_nodes(nodes[:1]) == {}
