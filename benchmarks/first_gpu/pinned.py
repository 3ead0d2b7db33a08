"""Host memory of copies that torch pins, against the plan, which rounds each up to a power of two.

    python -m benchmarks.first_gpu.pinned

verl offloads weights and moments by such copies. Without a GPU there is only the plan: a driver pins.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil
import torch

from benchmarks.gpu_model.memory import PUBLISHED
from benchmarks.gpu_model.meter import Measured, section
from verl_video_tools.launch.plan import (
    MOMENT_BYTES,
    WEIGHT_BYTES,
    RunOptions,
    Tensors,
    find_model,
    num_values,
    pinned_bytes,
)

NUM_GPUS = 8
COPIES = Tensors(number=100, rows=18_944, columns=3584)
"""Weights of a 7B model's MLP: 34 MB is what one of eight GPUs has of each."""


def planned_lines() -> list[Measured]:
    """Weights and moments of both models on one of eight GPUs, as the plan has them."""
    lines = []
    for name in PUBLISHED.values():
        model = find_model(name)
        planned = pinned_bytes(model, RunOptions(), NUM_GPUS)
        shards = num_values((*model.tensors, *model.vision_tensors)) * (WEIGHT_BYTES + 2 * MOMENT_BYTES) / NUM_GPUS
        note = f"{planned / shards:.2f} times their {shards / 1e9:.1f} GB"
        lines.append(Measured(f"{name}, weights and moments", "planned", planned_bytes=planned, note=note))
    return lines


def measured_lines() -> list[Measured]:
    """Copies from a GPU: bytes by torch's allocator, by the process, and by what the machine has left."""
    shard = torch.zeros(COPIES.rows // NUM_GPUS, COPIES.columns, device="cuda")
    copied_bytes = COPIES.number * shard.nbytes
    planned = COPIES.pinned_bytes(NUM_GPUS, shard.element_size())

    def used() -> tuple[int, ...]:
        pinned = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
        return pinned, psutil.Process().memory_info().rss, -psutil.virtual_memory().available

    before, started = used(), time.perf_counter()
    copies = [shard.to("cpu", non_blocking=True) for _ in range(COPIES.number)]
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    extra = [after - earlier for after, earlier in zip(used(), before, strict=True)]
    case = f"{len(copies)} tensors of {shard.nbytes / 1e6:.1f} MB"
    note = f"{copied_bytes / 1e9:.2f} GB were copied, {copied_bytes / seconds / 1e9:.1f} GB/s with pinning"
    ways = ("pinned, by torch's allocator", "resident memory of the process", "available memory that is gone")
    return [Measured(way, case, seconds, size, planned, note=note) for way, size in zip(ways, extra, strict=True)]


def main() -> None:
    lines = planned_lines()
    constants: list[Sequence[str]] = []
    if torch.cuda.is_available():
        pinned, *others = measured_lines()
        lines += [pinned, *others]
        sizes = (f"{(size or 0) / 1e9:.2f} GB" for size in (pinned.planned_bytes, pinned.extra_bytes))
        constants = [(f"Tensors.pinned_bytes, {pinned.case}", *sizes)]
    else:
        lines.append(Measured("copies of a GPU's tensors", "measured", note="waiting for a GPU"))
    print(section("Pinned host memory", lines, constants))


if __name__ == "__main__":
    main()
