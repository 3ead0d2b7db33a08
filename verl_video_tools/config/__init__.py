"""Config groups of a run (`+video_tools=longvt_grpo`), other files of verl's configuration, and values that follow.

`verl_plugin.hydra_groups` makes the groups known to Hydra.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from omegaconf import OmegaConf

from verl_video_tools.core.errors import UsageError

VLLM_CPU_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Keep freed memory instead of handing it back to the kernel after every step: page faults cost more than the
    # arithmetic of a small model.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # vLLM compiles its sampler for half a minute at every start, even with enforce_eager; on a CPU that never pays.
    "TORCHDYNAMO_DISABLE": "1",
    # vLLM's CPU platform lets an engine run its model in its own process only where this is 0.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""Variables of vLLM's CPU build, in training and in evaluation (docs/cpu.md says why each)."""
CORES_PER_AGENT_WORKER = 6
"""Agent loop workers decode videos."""
_FILES = {
    "agent-loops": "agent_loops.yaml",
    "tools": "tools.yaml",
    "group-router": "group_router.yaml",
    "hermes-template": "chat_templates/hermes_tools.jinja",
    "longvt-template": "chat_templates/longvt_released.jinja",
}
"""By the names that `vvt path` knows."""
BYTES_PER_TOKEN = 3072
"""Of an image in a loader's batch, at most."""


def agent_workers(train_batch_size: int, num_nodes: int, cores_per_node: int) -> int:
    """Agent loop workers of a run: as many as its cores feed, and no more than a step has groups."""
    return min(train_batch_size, num_nodes * max(1, cores_per_node // CORES_PER_AGENT_WORKER))


def storage_units(num_nodes: int) -> int:
    """Storage units of TransferQueue, which asks for two per node or more."""
    return 8 if num_nodes < 2 else 4 * num_nodes


def loader_workers(
    train_batch_size: int,
    max_length: int,
    devices_per_node: int,
    num_nodes: int,
    devices_per_sequence: int,
    shm_gb: float,
) -> int:
    """Worker processes of each device's loader, 1 to 8, each with two batches ready in `shm_gb` of a node's /dev/shm.

    With a single one, frames are still decoded on several threads. Devices that share a sequence load the same rows.
    """
    devices = num_nodes * devices_per_node
    rows_per_device = -(-train_batch_size * devices_per_sequence // devices)
    batch_bytes = rows_per_device * max_length * BYTES_PER_TOKEN
    return min(8, max(1, int(shm_gb * 1e9 / (devices_per_node * 2 * batch_bytes))))


def agent_loop_targets(path: Path | str) -> dict[str, str]:
    """Names and classes of a verl agent-loop file (a YAML list of entries with `name` and `_target_`)."""
    entries = OmegaConf.to_container(OmegaConf.load(path)) or []
    return {str(entry["name"]): str(entry["_target_"]) for entry in entries if isinstance(entry, dict)}


def config_path(name: str) -> Path:
    """Absolute path of a packaged configuration file.

    Raises:
        UsageError: there is no file of that name.
    """
    if name not in _FILES:
        raise UsageError(f"no packaged file is called {name!r}; known: {', '.join(sorted(_FILES))}")
    return Path(str(files(__name__))) / _FILES[name]
