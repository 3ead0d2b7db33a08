"""The result as tables in Markdown: measures of LongVT with their limits, methods, and steps on whole nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import constants as c
from .summary import (
    Measured,
    encodes_per_group,
    num_rollouts,
    prefills_per_group,
    queue_bytes_per_rollout,
    queue_copies,
    validation_bytes,
)

Result = Mapping[str, Any]
"""`commit`, `methods` (of `measure`, by name), `front_end` (of `front_end`), `stock_front_end` (LongVT without)."""


@dataclass(frozen=True)
class Measure:
    """A row of the first table.

    Attributes:
        value: of a result.
        limit: that must not be exceeded; None where there is none.
    """

    name: str
    value: Callable[[Result], float]
    limit: float | None
    unit: str = "s"


def _longvt(value: Callable[[Measured], float]) -> Callable[[Result], float]:
    return lambda result: value(result["methods"]["longvt"])


def _loop_per_rollout(measured: Measured) -> float:
    return float(measured["worker"]["loop_cpu_seconds"] / num_rollouts(measured))


def _turn(number: int, name: str) -> Callable[[Result], float]:
    return lambda result: float(result["front_end"]["turns"][number][name])


def _server(name: str) -> Callable[[Measured], float]:
    return lambda measured: max(float(server[name]) for server in measured["servers"])


MEASURES: tuple[Measure, ...] = (
    Measure("initial-frame prefills per group, two replicas", _longvt(prefills_per_group), 1.1, ""),
    Measure("initial-frame encodes per group, two replicas", _longvt(encodes_per_group), 1.1, ""),
    Measure(
        "event loop of an agent loop worker, per rollout",
        _longvt(_loop_per_rollout),
        0.05,
    ),
    Measure(
        "the same with vLLM's own front end",
        lambda result: _loop_per_rollout(result.get("stock_front_end") or result["methods"]["longvt"]),
        None,
    ),
    Measure(
        "longest pause of that loop, its own work",
        _longvt(lambda measured: measured["worker"]["longest_busy_pause_seconds"]),
        0.02,
    ),
    Measure(
        "CPU of workers per group of 16",
        _longvt(lambda measured: measured["worker"]["cpu_seconds"] / num_rollouts(measured) * 16),
        15.0,
    ),
    Measure("vLLM front end, later turn, 752 cached images", _turn(0, "cpu_seconds"), 0.15),
    Measure("vLLM front end, later turn, 1,152 cached images", _turn(1, "cpu_seconds"), 0.25),
    Measure("of it on the event loop, 1,152 images", _turn(1, "loop_cpu_seconds"), 0.02),
    Measure("longest pause of the server's loop, its own work", _longvt(_server("longest_busy_pause_seconds")), None),
    Measure(
        "copies of initial frames in the queue, group of 16",
        _longvt(lambda measured: queue_copies(measured, 16)),
        1.1,
        "",
    ),
    Measure(
        "pixels of a short validation rollout in the queue",
        _longvt(lambda measured: validation_bytes(measured) / 1e6),
        0.0,
        "MB",
    ),
    Measure(
        "bytes of images in the queue per rollout",
        _longvt(lambda measured: queue_bytes_per_rollout(measured) / 1e6),
        None,
        "MB",
    ),
    Measure(
        "bytes of images sent to servers per rollout",
        _longvt(lambda measured: measured["worker"]["sent"]["bytes"] / num_rollouts(measured) / 1e6),
        None,
        "MB",
    ),
    Measure(
        "growth of the front end's turn, 1,152 over 752 images (linear: 1.53)",
        lambda result: _turn(1, "cpu_seconds")(result) / _turn(0, "cpu_seconds")(result),
        None,
        "",
    ),
    Measure(
        "peak memory of a worker",
        _longvt(lambda measured: measured["worker"]["peak_memory_bytes"] / 1e9),
        None,
        "GB",
    ),
)


def measures_table(before: Result, after: Result) -> str:
    """LongVT, measured."""
    rows = []
    for measure in MEASURES:
        values = [measure.value(result) for result in (before, after)]
        limit = "" if measure.limit is None else number(measure.limit, measure.unit)
        missed = measure.limit is not None and values[1] > measure.limit
        rows.append(
            [measure.name, *(number(value, measure.unit) for value in values), limit, "missed" if missed else ""]
        )
    before_name, after_name = (
        f"{str(result['commit'])[:7]} ({num_rollouts(result['methods']['longvt'])} rollouts)"
        for result in (before, after)
    )
    return table(["measure (LongVT)", before_name, after_name, "at most", ""], rows)


def methods_table(before: Result, after: Result) -> str:
    """All methods, measured: per rollout, before and after."""
    rows = []
    for name, measured in after["methods"].items():
        pair = [result["methods"][name] for result in (before, after) if name in result["methods"]]
        rows.append(
            [
                name,
                _pair(pair, lambda m: m["worker"]["loop_cpu_seconds"] / num_rollouts(m)),
                _pair(pair, lambda m: m["worker"]["cpu_seconds"] / num_rollouts(m)),
                _pair(pair, lambda m: sum(s["loop_cpu_seconds"] for s in m["servers"]) / num_rollouts(m)),
                _pair(pair, prefills_per_group),
                _pair(pair, lambda m: queue_bytes_per_rollout(m) / 1e6),
                _pair(pair, lambda m: m["worker"]["peak_memory_bytes"] / 1e9),
                f"{num_rollouts(measured)}",
            ]
        )
    head = [
        "method",
        "worker's loop, s",
        "worker's CPU, s",
        "server's loop, s",
        "prefills per group",
        "queue, MB",
        "worker's peak, GB",
        "rollouts",
    ]
    return table(head, rows)


def steps_table(steps: Iterable[Mapping[str, Any]], gpu_speed: float = 1.0) -> str:
    """Steps on whole nodes. GPU figures are modelled."""
    rows = [
        [
            step["method"],
            f"{step['nodes']} x {c.GPUS_PER_NODE}",
            step["version"],
            *(
                f"{step[name]:.0f}"
                for name in ("gpu_rollout", "host_wait", "queue", "gpu_training", "tensors", "seconds")
            ),
            f"{step['gpu_share']:.0%}",
            step["bound_by"],
        ]
        for step in steps
        if step["gpu_speed"] == gpu_speed
    ]
    head = ["method", "GPUs", "", "rollouts on GPUs*", "waiting for hosts", "queue", "training*", "tensors*", "step*"]
    return table([*head, "GPUs busy*", "rollouts bound by"], rows) + "\n\\* modelled\n"


def number(value: float, unit: str = "") -> str:
    """Two or three digits that mean something."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
    return f"{text} {unit}".strip()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _pair(measured: Sequence[Measured], value: Callable[[Measured], float]) -> str:
    return " -> ".join(number(value(each)) for each in measured)
