"""After a run on a cluster has failed: which nodes are dead.

If the node of verl's trainer process is lost, its watchdog is lost with it, and all that Ray tells the job is that a
connection broke. `vvt train` then runs `python -m verl_video_tools.verl_plugin.lost_nodes`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

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
