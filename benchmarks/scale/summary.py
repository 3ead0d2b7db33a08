"""From what was measured to what the issue asks for: work per rollout, sizes of a step, measures with their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cases import CASES
from .critical_path import HostWork, StepSize

Measured = Mapping[str, Any]
"""The result of `measure` for one method."""


def num_rollouts(measured: Measured) -> int:
    return int(measured["num_groups"] * measured["group_size"])


def core_count(measured: Measured, name: str) -> float:
    """Summed over the inference servers."""
    return float(sum(server["core"].get(name, 0) for server in measured["servers"]))


def prefills_per_group(measured: Measured) -> float:
    """How often the servers computed the tokens of a group's initial frames."""
    once = max(server["core"].get("initial_tokens", 0) for server in measured["servers"])
    return core_count(measured, "initial_tokens_computed") / once / measured["num_groups"]


def encodes_per_group(measured: Measured) -> float:
    """The same for the vision tower, by images."""
    return (
        core_count(measured, "initial_images_encoded") / CASES[measured["method"]].num_initial / measured["num_groups"]
    )


def queue_copies(measured: Measured, group_size: int) -> float:
    """Copies of a group's initial frames in the queue: one, or one in each row."""
    queue = measured["queue"]
    return 1.0 if queue["rows_with_references"] else group_size * queue["num_rows"] / num_rollouts(measured)


def validation_bytes(measured: Measured) -> float:
    """Of pixels that the queue holds of one short rollout of a validation."""
    queue = measured["validation"]
    return float(queue["tensor_bytes"] + queue["block_bytes"])


def queue_bytes_per_rollout(measured: Measured) -> float:
    queue = measured["queue"]
    return float((queue["tensor_bytes"] + queue["block_bytes"]) / num_rollouts(measured))


def read_bytes_per_rollout(measured: Measured) -> float:
    """What a training process reads for a rollout, without those that it may have kept."""
    queue, rollouts = measured["queue"], num_rollouts(measured)
    shared = queue["shared_block_bytes"]
    blocks_per_group = max(1, round(encodes_per_group(measured)))  # of initial frames: FrameMind has one for each rung
    shown = shared / blocks_per_group / measured["num_groups"]
    return float(shown + (queue["tensor_bytes"] + queue["block_bytes"] - shared) / rollouts)


def host_work(measured: Measured) -> HostWork:
    """Per rollout, as `critical_path` wants it."""
    rollouts, worker = num_rollouts(measured), measured["worker"]
    servers_reached = sum(bool(server["core"]) for server in measured["servers"])
    return HostWork(
        worker_loop_seconds=max(0.0, worker["loop_cpu_seconds"]) / rollouts,
        worker_seconds=worker["cpu_seconds"] / rollouts,
        server_seconds=sum(server["cpu_seconds"] for server in measured["servers"]) / rollouts,
        queue_bytes=read_bytes_per_rollout(measured),
        makes_tensors=bool(measured["queue"]["rows_with_references"]),
        prefills=max(1.0, prefills_per_group(measured) / max(1, servers_reached)),
    )


def step_size(measured: Measured) -> StepSize:
    """Of the whole step that the recipe asks for."""
    case = CASES[measured["method"]]
    prompt, response = measured["queue"]["prompt_tokens"], measured["queue"]["response_tokens"]
    images = sum(measured["queue"]["images_per_row"]) / measured["queue"]["num_rows"]
    tokens_per_image = max(server["core"].get("initial_tokens", 0) for server in measured["servers"]) / case.num_initial
    return StepSize(
        method=case.method,
        family=case.family,
        num_groups=case.num_groups,
        group_size=case.group_size,
        num_turns=case.num_calls + 1,
        initial_tokens=prompt,
        response_tokens=response,
        image_tokens=min(prompt + response, images * tokens_per_image),
    )
