"""The device that is measured, and the planner's entry for it."""

from __future__ import annotations

from verl_video_tools.planner.constants import GPU, GPUS


def planner_gpu(name: str, memory_bytes: float) -> GPU | None:
    """The planner's entry for a device by the name that CUDA gives it, or None.

    Args:
        memory_bytes: where a kind comes with several sizes, that with the nearest is taken.
    """
    words = name.lower().replace("-", " ").split()
    entries = [gpu for gpu in GPUS.values() if gpu.name.split("-")[0] in words]
    return min(entries, key=lambda gpu: abs(gpu.memory_bytes - memory_bytes), default=None)
