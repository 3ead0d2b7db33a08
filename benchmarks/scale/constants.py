"""What the model of a step takes for granted: machines and models, each with its source, or "assumed".

Frozen before the measurements that it is used with. Nothing here is measured; whatever follows from it is marked as
modelled.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------------------ machines

GPUS_PER_NODE = 8
"""Of the papers' clusters."""

CORES_PER_NODE = 112
"""Cores of an NVIDIA DGX H100 (two Xeon 8480C of 56); NVIDIA's data sheet."""

CORE_SPEED = 1.0
"""Speed of such a core over that of the measuring machine's. Assumed; below 1 nothing is gained by it."""

GPU_FLOPS = 989e12
"""bfloat16 without sparsity, H100 SXM; NVIDIA's data sheet."""

GPU_BYTES_PER_SECOND = 3.35e12
"""Memory bandwidth, H100 SXM; NVIDIA's data sheet."""

PREFILL_UTILISATION = 0.45
"""Share of `GPU_FLOPS` in prefill and in the vision tower. Assumed."""

TRAINING_UTILISATION = 0.35
"""The same in forward and backward passes of training, with recomputation counted as work. Assumed."""

DECODE_UTILISATION = 0.6
"""Share of `GPU_BYTES_PER_SECOND` while tokens are generated. Assumed."""

FIXED_SECONDS = 20.0
"""Of a step, whatever its size: weights to the engine, sleep and wake-up, offloading. Assumed."""

QUEUE_UNIT_BYTES_PER_SECOND = 0.3e9
"""Of one storage unit of TransferQueue, one read. Measured once at 0.2 to 0.45 GB/s with float32 tensors."""

QUEUE_UNITS = {"before": (8, 8), "after": (8, 16)}
"""Storage units on 1 and on 8 nodes: verl's default, and that of the recipes since they follow the number of nodes."""

QUEUE_READS = 3
"""Passes over a row's images in a step: old log-probabilities, the reference's, the update."""

BUS_BYTES_PER_SECOND = 20e9
"""8-bit images from a host to its GPU, pageable memory on PCI Express 5. Assumed."""

PROCESSOR_TRAFFIC = 100
"""Bytes of GPU memory that the image processor reads and writes for a byte of 8-bit images: a dozen passes in float32.
Assumed."""

# --------------------------------------------------------------------------------------------- models, by the method's

MODEL_PARAMETERS = {"qwen2_5_vl": 7.6e9, "qwen3_vl": 8.2e9}
"""Of the language model: Qwen2.5-VL-7B and Qwen3-VL-8B; their configurations."""

VISION_PARAMETERS = {"qwen2_5_vl": 0.68e9, "qwen3_vl": 0.58e9}
"""Of the vision tower; the same."""

PATCHES_PER_TOKEN = 4
"""Both families merge 2 x 2 patches into a token."""

ATTENTION_WIDTH = {"qwen2_5_vl": 3584, "qwen3_vl": 4096}
NUM_LAYERS = {"qwen2_5_vl": 28, "qwen3_vl": 36}
KV_BYTES_PER_TOKEN = {"qwen2_5_vl": 2 * 28 * 4 * 128 * 2, "qwen3_vl": 2 * 36 * 8 * 128 * 2}
"""Keys and values, layers, heads, width, bytes; the same."""

TOKENS_PER_TURN = 200
"""That a policy generates. Assumed; the scripted policies say less."""

FORWARD_PASSES = {"longvt": 2, "videozoomer": 2, "framethinker": 1, "videobrain": 2, "framemind": 2}
"""Before the update: old log-probabilities, and the reference's where the recipe has a KL loss."""

RECOMPUTATION = 4 / 3
"""Work of an update with gradient checkpointing over that without: one more forward pass to forward and backward."""

AGENT_WORKERS_PER_NODE = 16
"""At most one for each question; `config.agent_workers`."""

NODES = (1, 8)
GPU_SPEEDS = (0.5, 1.0, 2.0)
"""Factors on everything that GPUs do, for what-if rows."""
