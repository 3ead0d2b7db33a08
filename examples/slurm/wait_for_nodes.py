"""Waits until a Ray cluster has all its nodes: `python wait_for_nodes.py HOST:PORT NUM_NODES`."""

from __future__ import annotations

import sys
import time

import ray

PATIENCE_SECONDS = 300


def main(address: str, num_nodes: int) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    found = 0
    while time.monotonic() < deadline:
        try:
            ray.init(address, log_to_driver=False, ignore_reinit_error=True)
            found = sum(node["Alive"] for node in ray.nodes())
        except ConnectionError:  # the first node is not up yet
            pass
        if found >= num_nodes:
            return 0
        time.sleep(2)
    print(f"wait_for_nodes.py: {found} of {num_nodes} nodes after {PATIENCE_SECONDS} s", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
