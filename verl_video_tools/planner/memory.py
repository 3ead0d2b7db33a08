"""Memory of a GPU and of a node, in bytes. The formulas are estimates; no constant has been compared with a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_video_tools.core.errors import UsageError
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.options import RunOptions
from verl_video_tools.planner.workload import Workload

GiB = 2**30
GB = 10**9


@dataclass(frozen=True)
class GPU:
    """A kind of GPU with its memory as torch reports it, a little below the nominal size."""

    name: str
    memory_bytes: float


GPUS = {
    name: GPU(name, memory_bytes)
    for name, memory_bytes in {
        "h100": 79 * GiB,
        "h200": 139 * GiB,
        "h20": 95 * GiB,
        "a100-80gb": 79 * GiB,
        "a100-40gb": 39 * GiB,
        "l40s": 44 * GiB,  # with error correction, as nvidia-smi reports it
        "rtx-4090": 23 * GiB,
    }.items()
}


def find_gpu(name: str) -> GPU:
    """Raises UsageError where the kind is not known."""
    if name.lower() not in GPUS:
        raise UsageError(f"--gpu {name!r} is not known; known are {', '.join(GPUS)}")
    return GPUS[name.lower()]


# ---------------------------------------------------------------------------------------------------------- the actor
# verl 0.9.1 trains with float32 weights and gradients, and AdamW with two float32 moments.
WEIGHT_BYTES = 4
GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 8
REFERENCE_BYTES = 2  # bfloat16 in our recipes; verl 0.9.1 keeps the reference in host memory
LOGIT_COPIES = 2  # logits and their gradient, in bfloat16
ENTROPY_COPIES = 2  # more with verl's default entropy, after ten lengths: python -m benchmarks.entropy, on a CPU
CONTEXT_BYTES = 3 * GiB  # assumed: CUDA contexts, NCCL, what a sleeping vLLM keeps
FRAGMENTATION = 1.1  # assumed


@dataclass(frozen=True)
class ActorMemory:
    """One GPU at the peak of an update, for which offloaded weights and optimizer are loaded.

    Attributes:
        gathered: weights that FSDP has gathered from all GPUs.
        kept: inputs of all layers of both parts and pixels, kept for the backward pass.
        layer: inside the largest layer of either part while its gradients are computed.
        logits: are freed before the backward pass reaches any layer, so they do not add to `layer`.
    """

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    kept: float
    layer: float
    logits: float

    @property
    def resident(self) -> float:
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        return CONTEXT_BYTES + FRAGMENTATION * (
            self.resident + self.gathered + self.kept + max(self.layer, self.logits)
        )

    def beside_engine(self, options: RunOptions) -> float:
        """What stays on the GPU while the engine generates. Gradients are freed after the update."""
        return CONTEXT_BYTES + (0.0 if options.offload else self.weights + self.optimizer)


def actor_memory(
    model: ModelShape, options: RunOptions, workload: Workload, num_gpus: int, longest_tokens: int
) -> ActorMemory:
    """At the peak of an update.

    Args:
        longest_tokens: of each sequence of the micro-batch.
    """
    trained = trained_parameters(model, options)
    tokens = options.micro_batch_size * longest_tokens / options.ulysses
    images = options.micro_batch_size * workload.longest_image_tokens
    return ActorMemory(
        weights=held_parameters(model, options) * WEIGHT_BYTES / num_gpus,
        gradients=trained * GRADIENT_BYTES / num_gpus,
        optimizer=trained * OPTIMIZER_BYTES / num_gpus,
        gathered=gathered_bytes(model),
        kept=text_kept_bytes(model, tokens) + vision_kept_bytes(model, images, frozen=options.freeze_vision),
        layer=max(text_layer_bytes(model, tokens), vision_layer_bytes(model, images)),
        logits=logits_bytes(model, tokens, options),
    )


def layer_parameters(model: ModelShape) -> int:
    """Of one layer of the language model: attention and a gated MLP."""
    width = (model.heads + 2 * model.kv_heads) * model.head_dim + model.heads * model.head_dim
    return model.hidden * (width + 3 * model.intermediate)


def adapter_parameters(model: ModelShape, rank: int) -> int:
    """Of LoRA: rank x (inputs + outputs) of every linear layer of the language model's layers."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    attention = 2 * (model.hidden + queries) + 2 * (model.hidden + keys)
    return model.layers * rank * (attention + 3 * (model.hidden + model.intermediate))


def trained_parameters(model: ModelShape, options: RunOptions) -> int:
    """The adapter's, or all without a frozen vision tower's."""
    if options.lora_rank:
        return adapter_parameters(model, options.lora_rank)
    return model.num_text_parameters if options.freeze_vision else model.num_parameters


def held_parameters(model: ModelShape, options: RunOptions) -> int:
    """The model's and its adapter's."""
    return model.num_parameters + adapter_parameters(model, options.lora_rank)


def gathered_bytes(model: ModelShape) -> float:
    """Two layers, embedding and output in bfloat16."""
    return 2 * (2 * layer_parameters(model) + 2 * model.vocabulary * model.hidden)


def text_kept_bytes(model: ModelShape, tokens: float) -> float:
    """With gradient checkpointing: the input of each layer of the language model, in bfloat16.

    Args:
        tokens: of a micro-batch on this GPU.
    """
    return 2 * tokens * model.layers * model.hidden


def text_layer_bytes(model: ModelShape, tokens: float) -> float:
    """Inside one layer of the language model, at most: while the gradients of its MLP are computed.

    Six bfloat16 tensors of the MLP's width exist then, beside what attention and norms have saved. A norm saves its
    input in float32 and normalised, also those of queries and keys in Qwen3-VL.
    """
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    inside = 4 * (4 * model.hidden + queries + 2 * keys + 3 * model.intermediate)
    return tokens * (inside + 6 * (queries + keys) * model.qk_norm)


def vision_kept_bytes(model: ModelShape, image_tokens: float, *, frozen: bool) -> float:
    """Inputs of the vision tower's layers, what its mergers save, and pixels in bfloat16. A frozen tower keeps pixels.

    Each GPU runs the tower on all images of a sequence: Ulysses does not divide them. A merger is an MLP without
    checkpointing, which saves its normalised input, the output of its first layer, and that of the activation.
    """
    width = 0 if frozen else model.vision_layers + 3 * (1 + model.deepstack)
    patches = image_tokens * model.merge**2
    return 2 * patches * width * model.vision_hidden + image_tokens * model.feature_bytes_per_image_token


def vision_layer_bytes(model: ModelShape, image_tokens: float) -> float:
    """Inside one layer of the vision tower, at most. Too much for a frozen tower."""
    mlp_tensors = 6 if model.gated_vision else 3
    return 2 * image_tokens * model.merge**2 * (14 * model.vision_hidden + mlp_tensors * model.vision_intermediate)


def logits_bytes(model: ModelShape, tokens: float, options: RunOptions) -> float:
    """Logits of a micro-batch on this GPU, their gradient, and what entropy adds.

    With few tokens the gradient of the head's weight is larger. LoRA does not train the head.
    """
    copies = LOGIT_COPIES + ENTROPY_COPIES * options.entropy
    logits = 2 * tokens * model.vocabulary
    head = 0 if options.lora_rank else 2 * model.vocabulary * model.hidden
    return max(copies * logits, logits + head)


# --------------------------------------------------------------------------------------------------------- the engine
ENGINE_OVERHEAD_BYTES = 5 * GiB  # assumed: vLLM's activations and CUDA graphs


@dataclass(frozen=True)
class EngineMemory:
    """vLLM on one GPU. `longest_rollouts` of the longest rollouts fit into its cache at once."""

    weights: float
    kv_cache: float
    budget: float
    longest_rollouts: float


def engine_memory(model: ModelShape, options: RunOptions, gpu: GPU, longest_tokens: int) -> EngineMemory:
    """vLLM takes `gpu_memory_utilization` of the GPU."""
    budget = options.utilization * gpu.memory_bytes
    weights = 2 * model.num_parameters / options.tp
    kv_cache = max(0.0, budget - weights - ENGINE_OVERHEAD_BYTES)
    return EngineMemory(weights, kv_cache, budget, kv_cache / (longest_tokens * kv_bytes_per_token(model, options.tp)))


def kv_bytes_per_token(model: ModelShape, tp: int) -> float:
    """In bfloat16 on each GPU of a server. With more GPUs than heads of keys, heads are copied."""
    return 4 * model.layers * max(1.0, model.kv_heads / tp) * model.head_dim


# ------------------------------------------------------------------------------------------------------------- a node
PROCESS_BYTES = 8 * GB  # assumed: a training worker, or both processes of an inference server
IMAGE_CACHE_BYTES = 1 * GiB  # per training worker: verl_plugin keeps images that it fetched last
FRAME_CACHE_BYTES = 4 * GiB  # the frame cache's default
WORKER_CORES = 6  # assumed: an agent loop worker has an event loop and threads that decode
# Fitted to LongVT's and FrameThinker's steps: benchmarks/scale/after.json.
WORKER_BYTES = 1.15 * GB  # per agent loop worker without images
WORKER_IMAGE_COPIES = 4.4  # of the 8-bit images of its groups
ROW_BYTES_PER_TOKEN = 100  # assumed: ids, masks and positions in TransferQueue
SHM_BYTES_PER_GPU = 1 * GiB  # assumed: NCCL and vLLM's queues


@dataclass(frozen=True)
class HostMemory:
    """One node.

    Attributes:
        mm_cache_gb: vLLM's `mm_processor_cache_gb` per server, in GiB as vLLM reads it.
        shm: of /dev/shm.
    """

    queue: float
    object_store: float
    mm_cache_gb: int
    mm_caches: float
    offloaded: float
    processes: float
    shm: float

    @property
    def total(self) -> float:
        parts = (self.queue, self.object_store, self.mm_caches, self.offloaded, self.processes, FRAME_CACHE_BYTES)
        return sum(parts)


def host_memory(
    model: ModelShape, options: RunOptions, workload: Workload, num_gpus: int, gpus_per_node: int, cores_per_node: int
) -> HostMemory:
    """On each node, with everything divided evenly among nodes."""
    nodes = math.ceil(num_gpus / gpus_per_node)
    gpus = min(num_gpus, gpus_per_node)
    servers = max(1, num_gpus // options.tp)
    servers_here = math.ceil(servers / nodes)
    workers = agent_workers(workload.groups, nodes, cores_per_node)
    images = queue_image_bytes(workload, model)
    rows = workload.groups * workload.rollouts * workload.longest_tokens * ROW_BYTES_PER_TOKEN
    cache_gb = mm_cache_gb(workload, model, servers)
    offloaded = 0.0
    if options.offload:
        offloaded += WEIGHT_BYTES * held_parameters(model, options)
        offloaded += OPTIMIZER_BYTES * trained_parameters(model, options)
    if options.reference and not options.lora_rank:  # with LoRA it is the actor without its adapter
        offloaded += REFERENCE_BYTES * model.num_parameters
    return HostMemory(
        queue=(images + rows) / nodes,
        object_store=images / nodes,
        mm_cache_gb=cache_gb,
        mm_caches=servers_here * cache_gb * GiB,
        offloaded=gpus * offloaded / num_gpus,
        processes=gpus * (PROCESS_BYTES + IMAGE_CACHE_BYTES)
        + servers_here * PROCESS_BYTES
        + math.ceil(workers / nodes) * worker_bytes(workload, model, workers),
        shm=FRAME_CACHE_BYTES + max(2 * GB, images / nodes) + gpus * SHM_BYTES_PER_GPU,
    )


def queue_image_bytes(workload: Workload, model: ModelShape) -> float:
    """8-bit pixels in TransferQueue at the end of a step (`verl_plugin.stored_images`): `payload/bytes`."""
    return workload.step_image_tokens * model.stored_bytes_per_image_token


def agent_workers(groups: int, nodes: int, cores_per_node: int) -> int:
    """As many as the cores allow, and at most one per question, since one worker runs all rollouts of a question."""
    return min(groups, nodes * max(1, cores_per_node // WORKER_CORES))


def worker_bytes(workload: Workload, model: ModelShape, workers: int) -> float:
    """Peak of an agent loop worker, which decodes, packs and sends the images of its groups and keeps them for rows."""
    groups = math.ceil(workload.groups / workers)
    return WORKER_BYTES + WORKER_IMAGE_COPIES * groups * queue_image_bytes(workload, model) / workload.groups


def mm_cache_gb(workload: Workload, model: ModelShape, servers: int) -> int:
    """GiB that hold the images of all rollouts of a server, and a tenth more. At least vLLM's default of 4."""
    return max(4, math.ceil(1.1 * feature_bytes(workload, model, servers) / GiB))


def feature_bytes(workload: Workload, model: ModelShape, servers: int) -> float:
    """Images that one server's processor cache has to hold: `verl_plugin.group_router` gives it whole groups.

    With more servers than groups a group is divided, and a server's share may be the rollouts with the largest initial
    frames.
    """
    groups = math.ceil(workload.groups / servers)
    shards = max(1, math.ceil(servers / workload.groups))
    rollouts = groups * math.ceil(workload.rollouts / shards)
    initial = workload.mean_initial_image_tokens if shards == 1 else workload.initial_image_tokens
    tokens = (groups if workload.is_shared else rollouts) * initial
    tokens += rollouts * workload.max_calls * workload.call_image_tokens
    return tokens * model.feature_bytes_per_image_token
