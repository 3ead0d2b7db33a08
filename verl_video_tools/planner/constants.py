"""Every constant of the planner that is not a size of a model or an option of a recipe, with its source and unit.

`assumed` marks a figure that nobody has measured for us. Those of hardware are the vendors' peaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_video_tools.core.errors import UsageError

GiB = 2**30
GB = 10**9


@dataclass(frozen=True)
class GPU:
    """A kind of GPU.

    Attributes:
        memory_bytes: as torch reports it, a little below the nominal size.
        bf16_flops: dense peak, per second.
        memory_bytes_per_second: peak bandwidth of its own memory.
        source: where the peaks stand.
    """

    name: str
    memory_bytes: float
    bf16_flops: float
    memory_bytes_per_second: float
    source: str


_H100 = "https://www.nvidia.com/en-us/data-center/h100/"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_A100 = "https://www.nvidia.com/en-us/data-center/a100/"
_L40S = "https://www.nvidia.com/en-us/data-center/l40s/; memory with error correction, as nvidia-smi reports it"
_4090 = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_H20 = "assumed: the vendor publishes no data sheet; figures as resellers give them"
GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("h100", 79 * GiB, 989e12, 3.35e12, _H100),
        GPU("h200", 139 * GiB, 989e12, 4.8e12, _H200),
        GPU("h20", 95 * GiB, 148e12, 4.0e12, _H20),
        GPU("a100-80gb", 79 * GiB, 312e12, 2.04e12, _A100),
        GPU("a100-40gb", 39 * GiB, 312e12, 1.56e12, _A100),
        GPU("l40s", 44 * GiB, 362e12, 0.864e12, _L40S),
        GPU("rtx-4090", 23 * GiB, 165e12, 1.008e12, _4090),
    )
}


def find_gpu(name: str) -> GPU:
    """Raises UsageError where the kind is not known."""
    if name.lower() not in GPUS:
        raise UsageError(f"--gpu {name!r} is not known; known are {', '.join(GPUS)}")
    return GPUS[name.lower()]


@dataclass(frozen=True)
class Constant:
    value: float
    unit: str
    source: str


_SCALE = "fitted to LongVT's step on a busy machine: benchmarks/scale/after.json"
_SCALE_TWO = "fitted to the steps of LongVT and FrameThinker: benchmarks/scale/after.json"
_ENTROPY = "measured on a CPU: python -m benchmarks.entropy"
_VERL = "verl 0.9.1: fp32 master weights, fp32 gradients, AdamW"
CONSTANTS = {
    # ------------------------------------------------------------------------------------------------ GPU memory
    "weight_bytes": Constant(4, "bytes per parameter of the actor", _VERL),
    "gradient_bytes": Constant(4, "bytes per parameter of the actor", _VERL),
    "optimizer_bytes": Constant(8, "bytes per parameter of the actor", _VERL),
    "reference_bytes": Constant(
        2, "bytes per parameter of the reference", "the recipes' bf16; verl 0.9.1 keeps it on the host"
    ),
    "inference_bytes": Constant(2, "bytes per parameter and per value of the KV cache", "bf16"),
    "logit_copies": Constant(2, "bf16 copies of the logits", "logits and their gradient"),
    "entropy_copies": Constant(
        2, "further bf16 copies of the logits", _ENTROPY + ", verl's default, after ten lengths"
    ),
    "context_bytes": Constant(3 * GiB, "bytes per GPU", "assumed: CUDA contexts, NCCL, what a sleeping vLLM keeps"),
    "fragmentation": Constant(1.1, "factor on what the actor holds", "assumed"),
    "engine_overhead_bytes": Constant(5 * GiB, "bytes per GPU", "assumed: vLLM's activations and CUDA graphs"),
    # ----------------------------------------------------------------------------------------------- host memory
    "host_bytes": Constant(2048 * GB, "bytes per node", "assumed: 2 TB, as in a DGX H100 (--host-memory-gb)"),
    "host_cores": Constant(96, "cores per node", "assumed (--cores)"),
    "trainer_process_bytes": Constant(8 * GB, "bytes per process", "assumed: torch and CUDA libraries"),
    "server_process_bytes": Constant(8 * GB, "bytes per inference server", "assumed: two processes"),
    "worker_cores": Constant(6, "cores per agent loop worker", "assumed: its event loop, and threads that decode"),
    "worker_process_bytes": Constant(1.15 * GB, "bytes per agent loop worker without images", _SCALE_TWO),
    "worker_image_copies": Constant(4.4, "of the 8-bit images of groups under way in a worker", _SCALE_TWO),
    "trainer_image_cache_bytes": Constant(1 * GiB, "bytes per training worker", "verl_plugin: images fetched last"),
    "frame_cache_bytes": Constant(4 * GiB, "bytes per node", "default of the frame cache"),
    "row_bytes_per_token": Constant(100, "bytes per token of a row in the queue", "assumed: ids, masks, positions"),
    "shm_process_bytes": Constant(GiB, "bytes of /dev/shm per GPU", "assumed: NCCL and vLLM's queues"),
    # ------------------------------------------------------------------------------------------------------ time
    "mean_fraction": Constant(0.5, "calls made, of those that fit", "assumed"),
    "mean_turn_tokens": Constant(256, "tokens written in a turn", "assumed"),
    "full_turn_tokens": Constant(1024, "tokens written in a turn of the fullest rollout", "assumed"),
    "straggler_factor": Constant(1.5, "factor on generation", "assumed: a step waits for its longest rollouts"),
    "train_efficiency": Constant(0.35, "of peak FLOP/s", "assumed"),
    "forward_efficiency": Constant(0.4, "of peak FLOP/s", "assumed"),
    "prefill_efficiency": Constant(0.45, "of peak FLOP/s", "assumed"),
    "bandwidth_efficiency": Constant(0.6, "of peak memory bandwidth", "assumed"),
    "decode_floor_seconds": Constant(0.010, "seconds per decoding step", "assumed: launches and sampling"),
    "decode_frame_seconds": Constant(0.0355, "core-seconds of a worker per 1920x1080 frame", _SCALE),
    "front_end_seconds": Constant(1.37e-8, "seconds per byte of 8-bit images, in one process", _SCALE),
    "sync_bytes_per_second": Constant(25 * GB, "bytes per second and GPU", "assumed: gathering and loading weights"),
    "sync_fixed_seconds": Constant(10, "seconds per step", "assumed: sleep, wake, offloading"),
}


def constant(name: str) -> float:
    return CONSTANTS[name].value
