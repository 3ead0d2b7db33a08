"""The result as tables in Markdown: measures of LongVT with their limits, and all methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .cases import CASES

Measured = Mapping[str, Any]
"""The result of `measure` for one method."""
Result = Mapping[str, Any]
"""`methods` (`Measured` by name), `front_end` (of `front_end`), `stock_front_end` (LongVT with vLLM's own)."""


def num_rollouts(measured: Measured) -> int:
    return int(measured["num_groups"] * measured["group_size"])


def prefills_per_group(measured: Measured) -> float:
    """How often the servers computed the tokens of a group's initial frames."""
    once = max(server["core"].get("initial_tokens", 0) for server in measured["servers"])
    return _core_count(measured, "initial_tokens_computed") / once / measured["num_groups"]


def encodes_per_group(measured: Measured) -> float:
    """The same for the vision tower, by images."""
    num_initial = CASES[measured["method"]].num_initial
    return _core_count(measured, "initial_images_encoded") / num_initial / measured["num_groups"]


def _core_count(measured: Measured, name: str) -> float:
    """Summed over the inference servers."""
    return float(sum(server["core"].get(name, 0) for server in measured["servers"]))


def queue_copies(measured: Measured, group_size: int) -> float:
    """Copies of a group's initial frames in the queue: one, or one in each row."""
    queue = measured["queue"]
    return 1.0 if queue["rows_with_references"] else group_size * queue["num_rows"] / num_rollouts(measured)


def queue_bytes(queue: Mapping[str, Any]) -> float:
    """Of pixels."""
    return float(queue["tensor_bytes"] + queue["block_bytes"])


# --------------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Measure:
    """A row of the first table.

    Attributes:
        value: of a result.
        limit: that must not be exceeded; None where there is none.
    """

    name: str
    value: Callable[[Result], float]
    limit: float | None = None
    unit: str = "s"


def _longvt(value: Callable[[Measured], float]) -> Callable[[Result], float]:
    return lambda result: value(result["methods"]["longvt"])


def _loop_per_rollout(measured: Measured) -> float:
    return float(measured["worker"]["loop_cpu_seconds"] / num_rollouts(measured))


def _turn(number: int, name: str) -> Callable[[Result], float]:
    return lambda result: float(result["front_end"]["turns"][number][name])


def _longest_pause(measured: Measured) -> float:
    return max(float(server["longest_busy_pause_seconds"]) for server in measured["servers"])


def _worker(name: str) -> Callable[[Measured], float]:
    return lambda measured: float(measured["worker"][name])


MEASURES: tuple[Measure, ...] = (
    Measure("initial-frame prefills per group, two replicas", _longvt(prefills_per_group), 1.1, ""),
    Measure("initial-frame encodes per group, two replicas", _longvt(encodes_per_group), 1.1, ""),
    Measure("event loop of an agent loop worker, per rollout", _longvt(_loop_per_rollout), 0.05),
    Measure("the same with vLLM's own front end", lambda result: _loop_per_rollout(result["stock_front_end"])),
    Measure("longest pause of that loop, its own work", _longvt(_worker("longest_busy_pause_seconds")), 0.02),
    Measure(
        "CPU of workers per group of 16",
        _longvt(lambda measured: measured["worker"]["cpu_seconds"] / num_rollouts(measured) * 16),
        15.0,
    ),
    Measure("vLLM front end, later turn, 752 cached images", _turn(0, "cpu_seconds"), 0.15),
    Measure("vLLM front end, later turn, 1,152 cached images", _turn(1, "cpu_seconds"), 0.25),
    Measure("of it on the event loop, 1,152 images", _turn(1, "loop_cpu_seconds"), 0.02),
    Measure("longest pause of the server's loop, its own work", _longvt(_longest_pause)),
    Measure(
        "copies of initial frames in the queue, group of 16", _longvt(lambda each: queue_copies(each, 16)), 1.1, ""
    ),
    Measure(
        "pixels of a short validation rollout in the queue",
        _longvt(lambda measured: queue_bytes(measured["validation"]) / 1e6),
        0.0,
        "MB",
    ),
    Measure(
        "bytes of images sent to servers per rollout",
        _longvt(lambda measured: measured["worker"]["sent"]["bytes"] / num_rollouts(measured) / 1e6),
        unit="MB",
    ),
    Measure(
        "growth of the front end's turn, 1,152 over 752 images (linear: 1.53)",
        lambda result: _turn(1, "cpu_seconds")(result) / _turn(0, "cpu_seconds")(result),
        unit="",
    ),
)

METHOD_COLUMNS: dict[str, Callable[[Measured], float]] = {
    "worker's loop, s": _loop_per_rollout,
    "worker's CPU, s": lambda measured: measured["worker"]["cpu_seconds"] / num_rollouts(measured),
    "server's loop, s": lambda measured: (
        sum(server["loop_cpu_seconds"] for server in measured["servers"]) / num_rollouts(measured)
    ),
    "prefills per group": prefills_per_group,
    "queue, MB": lambda measured: queue_bytes(measured["queue"]) / num_rollouts(measured) / 1e6,
    "worker's peak, GB": lambda measured: measured["worker"]["peak_memory_bytes"] / 1e9,
}
"""Per rollout, where nothing else is said."""


def measures_table(result: Result) -> str:
    """LongVT, with limits."""
    rows = []
    for measure in MEASURES:
        value = measure.value(result)
        limit = "" if measure.limit is None else number(measure.limit, measure.unit)
        missed = measure.limit is not None and value > measure.limit
        rows.append([measure.name, number(value, measure.unit), limit, "missed" if missed else ""])
    measured = result["methods"]["longvt"]
    name = f"{str(measured['commit'])[:7]} ({num_rollouts(measured)} rollouts)"
    return table(["measure (LongVT)", name, "at most", ""], rows)


def methods_table(result: Result) -> str:
    rows = [
        [name, *(number(value(measured)) for value in METHOD_COLUMNS.values()), str(num_rollouts(measured))]
        for name, measured in result["methods"].items()
    ]
    return table(["method", *METHOD_COLUMNS, "rollouts"], rows)


def number(value: float, unit: str = "") -> str:
    """Two or three digits that mean something."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
    return f"{text} {unit}".strip()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
