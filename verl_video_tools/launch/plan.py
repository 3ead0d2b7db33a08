"""`vvt estimate`: tokens and memory that a GRPO run needs, with warnings about what may not fit.

Memory of a GPU and of a node is in bytes, by the sizes of the model, the options of a run, and a step's rollouts. The
formulas are estimates; no constant has been compared with a GPU.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_video_tools.config import agent_workers
from verl_video_tools.core.config import require_at_least
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.types import Method, PixelEnvelope, RolloutLimits, VideoInfo
from verl_video_tools.rollout.cost import estimate_cost
from verl_video_tools.rollout.tokens import ModelTokens
from verl_video_tools.video.frame_cache import DEFAULT_BYTES

GiB = 2**30
GB = 10**9


# ------------------------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True)
class Tensors:
    """Equal weights of a model, or of its adapter: `number` tensors of `rows` x `columns` values.

    FSDP divides the rows among all GPUs.
    """

    number: int
    rows: int
    columns: int

    @property
    def num_values(self) -> int:
        return self.number * self.rows * self.columns

    def pinned_bytes(self, num_gpus: int, value_bytes: int) -> int:
        """Host memory of one GPU's shards. PyTorch pins blocks whose sizes are powers of two
        (`ATen/core/CachingHostAllocator.h`, `PowerOf2Ceil`)."""
        shard_bytes = math.ceil(self.rows / num_gpus) * self.columns * value_bytes
        return self.number * 2 ** (shard_bytes - 1).bit_length()


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a Qwen-VL model that its memory depends on.

    Attributes:
        tensors: all weights but those of the vision tower, tied ones once.
        vision_tensors: those of the vision tower with its mergers.
        layers, hidden, heads, kv_heads, head_dim, vocabulary: of the language model.
        intermediate: width of its MLP, or of the shared expert. 0 where a layer has nothing but routed experts.
        vision_layers, vision_hidden, vision_intermediate: of the vision tower.
        patch: side of a patch in pixels. A token of an image is `merge` x `merge` patches.
        temporal_patch: how often the processor repeats an image in time.
        qk_norm: queries and keys have a norm of their own (Qwen3-VL).
        gated_vision: the vision tower's MLP has a gate (Qwen2.5-VL).
        deepstack: mergers of the vision tower beside its last one (Qwen3-VL).
        gated_attention: queries bring a gate of their own width (Qwen3.5).
        linear_layers: how many of the layers have linear attention (Qwen3.5).
        linear_key_heads, linear_value_heads, linear_head_dim: of these layers.
        experts, experts_per_token, expert_intermediate: of each layer of a mixture, and the width of an expert.
    """

    name: str
    tensors: tuple[Tensors, ...]
    vision_tensors: tuple[Tensors, ...]
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    vision_layers: int
    vision_hidden: int
    vision_intermediate: int
    patch: int
    merge: int
    temporal_patch: int
    qk_norm: bool = False
    gated_vision: bool = True
    deepstack: int = 0
    gated_attention: bool = False
    linear_layers: int = 0
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_head_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0

    @property
    def num_parameters(self) -> int:
        return sum(tensors.num_values for tensors in self.tensors) + self.num_vision_parameters

    @property
    def num_vision_parameters(self) -> int:
        return sum(tensors.num_values for tensors in self.vision_tensors)

    @property
    def factor(self) -> int:
        """Sides of images are multiples of it, in pixels."""
        return self.patch * self.merge

    @property
    def stored_bytes_per_image_token(self) -> int:
        """8-bit RGB pixels, as they lie in TransferQueue and in Ray's object store."""
        return 3 * self.factor**2

    @property
    def feature_bytes_per_image_token(self) -> int:
        """The processor's tensor in bfloat16, as vLLM's processor cache holds it."""
        return 2 * self.temporal_patch * self.stored_bytes_per_image_token

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def linear_key_width(self) -> int:
        return self.linear_key_heads * self.linear_head_dim

    @property
    def linear_value_width(self) -> int:
        return self.linear_value_heads * self.linear_head_dim

    @property
    def attention_maps(self) -> list[tuple[int, int]]:
        """Inputs and outputs of the linear maps of softmax attention: queries, keys, values, output."""
        queries = (self.hidden, self.query_width * (1 + self.gated_attention))
        return [queries, *[(self.hidden, self.key_width)] * 2, (self.query_width, self.hidden)]

    @property
    def linear_attention_maps(self) -> list[tuple[int, int]]:
        """The same of linear attention: queries with keys and values, gate, two gates per head, output."""
        values = self.linear_value_width
        gates = [(self.hidden, values), *[(self.hidden, self.linear_value_heads)] * 2]
        return [(self.hidden, 2 * self.linear_key_width + values), *gates, (values, self.hidden)]

    @property
    def mlp_maps(self) -> list[tuple[int, int]]:
        """The same of what every token passes; a shared expert has a gate. Routed experts are no linear maps."""
        if not self.intermediate:
            return []
        shared_gate = [(self.hidden, 1)] if self.experts else []
        return [*[(self.hidden, self.intermediate)] * 2, (self.intermediate, self.hidden), *shared_gate]

    @property
    def routed_parameters(self) -> int:
        """Of the experts of a layer, and of their router."""
        return self.experts * self.hidden * (3 * self.expert_intermediate + 1)


@cache
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """Entries of `models.json` by name: published configurations with their sources, and what was counted of them."""
    entries: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))
    return entries


def find_model(name: str) -> ModelShape:
    """A model by a name of `models.json`, its name on the hub, or a folder with `config.json`.

    A folder's parameters are counted, which imports torch and transformers; published ones have been counted.

    Raises:
        UsageError: it is neither, or the configuration is of another kind.
    """
    for short_name, entry in known_models().items():
        if name.lower() in (short_name, entry["hub_name"].lower()):
            return _shape(short_name, entry["config"], entry["tensors"], entry["vision_tensors"])
    file = Path(name) / "config.json"
    if not file.is_file():
        names = ", ".join(known_models())
        raise UsageError(f"--model {name!r} is neither a folder with a config.json nor one of {names}")
    try:
        config = json.loads(file.read_text("utf-8"))
        return shape_of(name, config)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"--model {name!r}: its config.json is not that of a Qwen-VL model: {error!r}") from error


Listed = list[list[int]]
"""Of `Tensors`, as JSON has them: number, rows, columns."""


def list_tensors(config: Mapping[str, Any]) -> tuple[Listed, Listed]:
    """Weights of transformers' model of a configuration, tied ones once: those of the vision tower are the second list.

    Raises:
        KeyError: there is no `model_type`.
        ValueError: transformers knows no such model.
    """
    return _list_tensors(json.dumps(dict(config)))


@cache
def _list_tensors(config: str) -> tuple[Listed, Listed]:
    """A run's start asks twice, for a second or two."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    settings = json.loads(config)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
    model.tie_weights()
    numbers: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
    for name, parameter in model.named_parameters():
        rows, *others = parameter.shape or (1,)
        numbers[".visual." in name][rows, math.prod(others)] += 1
    text, vision = ([[number, *size] for size, number in sorted(counter.items())] for counter in numbers)
    return text, vision


def shape_of(name: str, config: Mapping[str, Any]) -> ModelShape:
    """Sizes of a configuration, with its weights by `list_tensors`, which may raise."""
    return _shape(name, config, *list_tensors(config))


def _shape(name: str, config: Mapping[str, Any], tensors: Listed, vision_tensors: Listed) -> ModelShape:
    text, vision = config.get("text_config", config), config["vision_config"]
    is_qwen3 = config["model_type"].startswith("qwen3")
    is_hybrid = "layer_types" in text and "linear_attention" in text["layer_types"]
    return ModelShape(
        name=name,
        tensors=tuple(Tensors(*sizes) for sizes in tensors),
        vision_tensors=tuple(Tensors(*sizes) for sizes in vision_tensors),
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        heads=text["num_attention_heads"],
        kv_heads=text["num_key_value_heads"],
        head_dim=text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"],
        intermediate=_shared_intermediate(text),
        vocabulary=text["vocab_size"],
        vision_layers=vision["depth"],
        vision_hidden=vision["hidden_size"],
        vision_intermediate=vision["intermediate_size"],
        patch=vision["patch_size"],
        merge=vision["spatial_merge_size"],
        temporal_patch=vision["temporal_patch_size"],
        qk_norm=is_qwen3,
        gated_vision=not is_qwen3,
        deepstack=len(vision.get("deepstack_visual_indexes", ())),
        gated_attention=is_hybrid,
        linear_layers=text["layer_types"].count("linear_attention") if is_hybrid else 0,
        linear_key_heads=text.get("linear_num_key_heads", 0),
        linear_value_heads=text.get("linear_num_value_heads", 0),
        linear_head_dim=text.get("linear_value_head_dim", 0),
        experts=_num_experts(text),
        experts_per_token=text.get("num_experts_per_tok", 0),
        expert_intermediate=text.get("moe_intermediate_size", 0),
    )


def _num_experts(text: Mapping[str, Any]) -> int:
    """Of a layer. transformers saves the number of Qwen3-VL's mixture under another name than released models have."""
    return int(text.get("num_experts", text.get("num_local_experts", 0)))


def _shared_intermediate(text: Mapping[str, Any]) -> int:
    """Width of the MLP that every token passes; in a mixture of experts that of the shared expert, if there is one."""
    if _num_experts(text):
        return int(text.get("shared_expert_intermediate_size", 0))
    return int(text["intermediate_size"])


@dataclass(frozen=True)
class RunOptions:
    """Options of a GRPO run. A configuration that lacks one gets the default.

    Attributes:
        batch_size: questions per step.
        rollouts: per question.
        prompt_length, response_length: limits of a rollout, in tokens.
        micro_batch_size: sequences that the actor processes at once on a GPU.
        min_pixels, max_pixels: of an image.
        utilization: part of a GPU's memory that vLLM takes.
        tp: GPUs per inference server.
        ulysses: GPUs among which the actor divides a sequence.
        offload: the actor's weights and optimizer are in host memory while it does not update.
        reference: the loss has a KL term.
        entropy: the loss has an entropy term.
        lora_rank: 0 trains all weights.
        fused_head: log-probabilities are computed in pieces, without the logits of all tokens.
    """

    batch_size: int = 32
    rollouts: int = 8
    prompt_length: int = 8192
    response_length: int = 8192
    micro_batch_size: int = 2
    min_pixels: int = 3136
    max_pixels: int = 235_200
    utilization: float = 0.6
    tp: int = 1
    ulysses: int = 1
    offload: bool = True
    reference: bool = False
    entropy: bool = False
    freeze_vision: bool = False
    lora_rank: int = 0
    fused_head: bool = False

    def __post_init__(self) -> None:
        require_at_least(self, 1, "batch_size", "rollouts", "micro_batch_size", "tp", "ulysses")

    @property
    def longest_tokens(self) -> int:
        """Of a rollout, at most."""
        return self.prompt_length + self.response_length

    def envelope(self, factor: int) -> PixelEnvelope:
        """Of images whose sides a model wants to be multiples of `factor` pixels."""
        return PixelEnvelope(factor, self.min_pixels, self.max_pixels)


@dataclass(frozen=True)
class Workload:
    """One step.

    Attributes:
        groups, rollouts: questions of the step, rollouts per question.
        initial_frames, initial_tokens: the most that a rollout of a group sees first, images and text.
        initial_image_tokens: of these, images alone.
        group_initial_image_tokens: images of the initial frames of all rollouts of a question; shared ones count once.
        call_tokens: images and text of the largest call; `call_image_tokens` counts images alone.
        max_calls: calls of the largest size that fit into a rollout's limits, of `allowed_calls` that its turns allow.
    """

    groups: int
    rollouts: int
    initial_frames: int
    initial_tokens: int
    initial_image_tokens: int
    group_initial_image_tokens: int
    call_frames: int
    call_tokens: int
    call_image_tokens: int
    max_calls: int
    allowed_calls: int

    @property
    def longest_image_tokens(self) -> int:
        return self.initial_image_tokens + self.max_calls * self.call_image_tokens

    @property
    def group_image_tokens(self) -> int:
        """Of all images of a question's rollouts with all calls that fit."""
        return self.group_initial_image_tokens + self.rollouts * self.max_calls * self.call_image_tokens


@dataclass(frozen=True)
class GPU:
    """A kind of GPU with its memory as torch reports it, a little below the nominal size."""

    name: str
    memory_bytes: float


GPUS = {
    "h100": 79 * GiB,
    "h200": 139 * GiB,
    "h20": 95 * GiB,
    "a100-80gb": 79 * GiB,
    "a100-40gb": 39 * GiB,
    "l40s": 44 * GiB,  # with error correction, as nvidia-smi reports it
    "rtx-4090": 23 * GiB,
}
"""Memory by the kind of GPU."""


def find_gpu(name: str) -> GPU:
    """Raises UsageError where the kind is not known."""
    if name.lower() not in GPUS:
        raise UsageError(f"--gpu {name!r} is not known; known are {', '.join(GPUS)}")
    return GPU(name.lower(), GPUS[name.lower()])


@dataclass(frozen=True)
class Cluster:
    """Equal nodes. The defaults are assumed."""

    gpu: GPU
    num_gpus: int
    gpus_per_node: int
    host_bytes: float = 2048 * GB  # as in a DGX H100
    cores_per_node: int = 96
    shm_bytes: float = math.inf

    @property
    def nodes(self) -> int:
        return math.ceil(self.num_gpus / self.gpus_per_node)


# ---------------------------------------------------------------------------------------------------------- the actor
# verl 0.9.1 trains with float32 weights and gradients, and AdamW with two float32 moments.
WEIGHT_BYTES = 4
GRADIENT_BYTES = 4
MOMENT_BYTES = 4
OPTIMIZER_BYTES = 2 * MOMENT_BYTES
REFERENCE_BYTES = 2  # bfloat16 in our recipes; verl 0.9.1 keeps the reference in host memory
LOGIT_COPIES = 2  # logits and their gradient, in bfloat16
FUSED_TOKENS = 512  # of a piece: verl's `FusedLinearForPPO.chunk_size`
FUSED_BYTES = 20  # of a logit with all that is made of it in float32, measured on a CPU
FUSED_ENTROPY_BYTES = 8  # more with an entropy term, measured on a CPU
ENTROPY_COPIES = 2  # more with verl's default entropy, after ten lengths: python -m benchmarks.entropy, on a CPU
CONTEXT_BYTES = 3 * GiB  # assumed: CUDA contexts, NCCL, what a sleeping vLLM keeps
FRAGMENTATION = 1.1  # assumed


@dataclass(frozen=True)
class ActorMemory:
    """One GPU at the peak of an update, for which offloaded weights and optimizer are loaded.

    Attributes:
        gathered: weights that FSDP has gathered from all GPUs.
        saved: inputs of all layers of both parts and pixels, for the backward pass.
        inside: what exists beside them at most: the logits, or the largest layer while its gradients are computed. The
            logits are freed before the backward pass reaches any layer.
    """

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    saved: float
    inside: float

    @property
    def parts(self) -> dict[str, float]:
        """Without the context, by what a user can change."""
        return {
            "weights, gradients, optimizer": self.weights + self.gradients + self.optimizer,
            "gathered layers": self.gathered,
            "inputs of layers, pixels": self.saved,
            "logits, or inside a layer": self.inside,
        }

    @property
    def total(self) -> float:
        return CONTEXT_BYTES + FRAGMENTATION * sum(self.parts.values())

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
    trained = num_values(trained_tensors(model, options))
    tokens = options.micro_batch_size * longest_tokens / options.ulysses
    images = options.micro_batch_size * workload.longest_image_tokens
    saved = text_saved_bytes(model, tokens) + vision_saved_bytes(model, images, frozen=options.freeze_vision)
    return ActorMemory(
        weights=num_values(all_tensors(model, options)) * WEIGHT_BYTES / num_gpus,
        gradients=trained * GRADIENT_BYTES / num_gpus,
        optimizer=trained * OPTIMIZER_BYTES / num_gpus,
        gathered=2 * (2 * layer_parameters(model) + 2 * model.vocabulary * model.hidden),  # two layers, both ends
        saved=saved,
        inside=max(
            text_layer_bytes(model, tokens),
            vision_layer_bytes(model, images),
            logits_bytes(model, tokens, options),
            processing_bytes(model, images) - saved,  # before any layer
        ),
    )


def layer_parameters(model: ModelShape) -> int:
    """Of the largest layer of the language model: attention of either kind, a gated MLP, and experts."""
    kinds = (model.attention_maps, model.linear_attention_maps)
    largest = max(sum(inputs * outputs for inputs, outputs in maps) for maps in kinds)
    return largest + sum(inputs * outputs for inputs, outputs in model.mlp_maps) + model.routed_parameters


def adapter_tensors(model: ModelShape, rank: int) -> tuple[Tensors, ...]:
    """Of LoRA: two for every linear map of the language model's layers, which experts are not. None with rank 0."""
    if not rank:
        return ()
    kinds = (
        (model.layers - model.linear_layers, model.attention_maps),
        (model.linear_layers, model.linear_attention_maps),
        (model.layers, model.mlp_maps),
    )
    maps = [(number, inputs, outputs) for number, of_kind in kinds for inputs, outputs in of_kind]
    down = [Tensors(number, rank, inputs) for number, inputs, _ in maps]
    return (*down, *(Tensors(number, outputs, rank) for number, _, outputs in maps))


def trained_tensors(model: ModelShape, options: RunOptions) -> tuple[Tensors, ...]:
    """The adapter's, or all without a frozen vision tower's."""
    if options.lora_rank:
        return adapter_tensors(model, options.lora_rank)
    return model.tensors if options.freeze_vision else (*model.tensors, *model.vision_tensors)


def all_tensors(model: ModelShape, options: RunOptions) -> tuple[Tensors, ...]:
    """The model's and its adapter's."""
    return (*model.tensors, *model.vision_tensors, *adapter_tensors(model, options.lora_rank))


def num_values(tensors: Iterable[Tensors]) -> int:
    return sum(of_size.num_values for of_size in tensors)


def text_saved_bytes(model: ModelShape, tokens: float) -> float:
    """With gradient checkpointing: the input of each layer of the language model, in bfloat16.

    Args:
        tokens: of a micro-batch on this GPU.
    """
    return 2 * tokens * model.layers * model.hidden


def text_layer_bytes(model: ModelShape, tokens: float) -> float:
    """Inside one layer of the language model, at most: while the gradients of its MLP are computed.

    Six bfloat16 tensors of the MLP's width exist then, beside what attention and norms have saved. A norm saves its
    input in float32 and normalised, also those of queries and keys in Qwen3-VL. A mixture has copies of a token for
    each of its experts. A layer of linear attention is taken for one whose queries, keys and values are as wide as its
    own, with gate; what its kernels keep is not counted.
    """
    query_width = max(model.query_width * (1 + model.gated_attention), 2 * model.linear_value_width)
    key_width = max(model.key_width, model.linear_key_width)
    hidden = model.hidden * (4 + 2 * model.experts_per_token)
    mlp = model.intermediate + model.experts_per_token * model.expert_intermediate
    inside = 4 * (hidden + query_width + 2 * key_width + 3 * mlp)
    return tokens * (inside + 6 * (query_width + key_width) * model.qk_norm)


def vision_saved_bytes(model: ModelShape, image_tokens: float, *, frozen: bool) -> float:
    """Inputs of the vision tower's layers, what its mergers save, and pixels in bfloat16. A frozen tower keeps pixels.

    Each GPU runs the tower on all images of a sequence: Ulysses does not divide them. A merger is an MLP without
    checkpointing, which saves its normalised input, the output of its first layer, and that of the activation.
    """
    width = 0 if frozen else model.vision_layers + 3 * (1 + model.deepstack)
    patches = image_tokens * model.merge**2
    return 2 * patches * width * model.vision_hidden + image_tokens * model.feature_bytes_per_image_token


def processing_bytes(model: ModelShape, image_tokens: float) -> float:
    """While the processor makes a micro-batch's pixels of 8-bit images: two tensors in float32."""
    return 4 * image_tokens * model.feature_bytes_per_image_token


def vision_layer_bytes(model: ModelShape, image_tokens: float) -> float:
    """Inside one layer of the vision tower, at most. Too much for a frozen tower."""
    mlp_tensors = 6 if model.gated_vision else 3
    return 2 * image_tokens * model.merge**2 * (14 * model.vision_hidden + mlp_tensors * model.vision_intermediate)


def logits_bytes(model: ModelShape, tokens: float, options: RunOptions) -> float:
    """Logits of a micro-batch on this GPU, their gradient, and what entropy adds.

    With few tokens the gradient of the head's weight is larger. LoRA does not train the head. A fused head has the
    logits of one piece, hidden states with their gradient, and the gradient of the head's weight for the piece, beside
    the sum over all pieces where the head is trained.
    """
    if options.fused_head:
        piece = min(tokens, FUSED_TOKENS) * model.vocabulary * (FUSED_BYTES + FUSED_ENTROPY_BYTES * options.entropy)
        weight_gradients = 2 * model.vocabulary * model.hidden * (1 if options.lora_rank else 2)
        return piece + weight_gradients + 4 * tokens * model.hidden
    logits = 2 * tokens * model.vocabulary
    head = 0 if options.lora_rank else 2 * model.vocabulary * model.hidden
    return max(logits * (LOGIT_COPIES + ENTROPY_COPIES * options.entropy), logits + head)


# --------------------------------------------------------------------------------------------------------- the engine
ENGINE_OVERHEAD_BYTES = 5 * GiB  # assumed: vLLM's activations and CUDA graphs


@dataclass(frozen=True)
class EngineMemory:
    """vLLM on one GPU. `longest_rollouts` of the longest rollouts fit into its cache at once."""

    weights: float
    kv_cache: float
    budget: float
    longest_rollouts: float


def engine_memory(model: ModelShape, options: RunOptions, gpu: GPU) -> EngineMemory:
    """vLLM takes `gpu_memory_utilization` of the GPU. Its cache is in bfloat16.

    A layer of linear attention holds one state of each rollout, in float32, however long the rollout is.
    """
    budget = options.utilization * gpu.memory_bytes
    weights = 2 * model.num_parameters / options.tp
    kv_cache = max(0.0, budget - weights - ENGINE_OVERHEAD_BYTES)
    heads = max(1.0, model.kv_heads / options.tp)  # with more GPUs than heads of keys, heads are copied
    token_bytes = 4 * (model.layers - model.linear_layers) * heads * model.head_dim
    state_bytes = 4 * model.linear_layers * model.linear_value_width * model.linear_head_dim / options.tp
    rollout_bytes = options.longest_tokens * token_bytes + state_bytes
    return EngineMemory(weights, kv_cache, budget, kv_cache / rollout_bytes)


# ------------------------------------------------------------------------------------------------------------- a node
PROCESS_BYTES = 8 * GB  # assumed: a training worker, or both processes of an inference server
IMAGE_CACHE_BYTES = 1 * GiB  # per training worker: verl_plugin keeps images that it fetched last
# An agent loop worker keeps the images of its groups in several copies while it decodes, packs and sends them. Fitted
# to the peaks of LongVT's and FrameThinker's workers in `make bench-scale`, on a CPU.
WORKER_BYTES = 1.15 * GB
WORKER_IMAGE_COPIES = 4.4
ROW_BYTES_PER_TOKEN = 100  # assumed: ids, masks and positions in TransferQueue
SHM_BYTES_PER_GPU = 1 * GiB  # assumed: NCCL and vLLM's queues


@dataclass(frozen=True)
class HostMemory:
    """One node.

    Attributes:
        parts: of its memory, by what takes them.
        shm: of /dev/shm.
        mm_cache_gb: vLLM's `mm_processor_cache_gb` per server, in GiB as vLLM reads it.
        workers: agent loop workers of all nodes.
    """

    parts: dict[str, float]
    shm: float
    mm_cache_gb: int
    workers: int

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def host_memory(model: ModelShape, options: RunOptions, workload: Workload, cluster: Cluster) -> HostMemory:
    """On each node, with everything divided evenly among nodes."""
    nodes, gpus = cluster.nodes, min(cluster.num_gpus, cluster.gpus_per_node)
    servers_here = math.ceil(max(1, cluster.num_gpus // options.tp) / nodes)
    workers = agent_workers(workload.groups, nodes, cluster.cores_per_node)
    images = queue_image_bytes(workload, model)
    worker_images = math.ceil(workload.groups / workers) * images / workload.groups
    rows = workload.groups * workload.rollouts * options.longest_tokens * ROW_BYTES_PER_TOKEN
    cache_gb = mm_cache_gb(model, options, workload, cluster.num_gpus)
    parts = {
        "TransferQueue": (images + rows) / nodes,
        "Ray's object store": images / nodes,
        "processor caches": servers_here * cache_gb * GiB,
        "offloaded weights, optimizer": gpus * pinned_bytes(model, options, cluster.num_gpus),
        "trainers and servers": gpus * (PROCESS_BYTES + IMAGE_CACHE_BYTES) + servers_here * PROCESS_BYTES,
        "agent loop workers": math.ceil(workers / nodes) * (WORKER_BYTES + WORKER_IMAGE_COPIES * worker_images),
        "frame caches": math.ceil(workers / nodes) * DEFAULT_BYTES,
    }
    shm = max(2 * GB, images / nodes) + gpus * SHM_BYTES_PER_GPU
    return HostMemory(parts, shm, cache_gb, workers)


def pinned_bytes(model: ModelShape, options: RunOptions, num_gpus: int) -> int:
    """Host memory of one GPU's shards of what is offloaded: weights, moments, reference. verl pins it all."""
    offloaded: list[tuple[int, tuple[Tensors, ...]]] = []
    if options.offload:
        trained = trained_tensors(model, options)
        offloaded = [(WEIGHT_BYTES, all_tensors(model, options)), *[(MOMENT_BYTES, trained)] * 2]
    if options.reference and not options.lora_rank:  # with LoRA it is the actor without its adapter
        offloaded.append((REFERENCE_BYTES, (*model.tensors, *model.vision_tensors)))
    return sum(of_size.pinned_bytes(num_gpus, size) for size, tensors in offloaded for of_size in tensors)


def queue_image_bytes(workload: Workload, model: ModelShape) -> float:
    """8-bit pixels in TransferQueue at the end of a step (`verl_plugin.images`): `payload/bytes`."""
    return workload.groups * workload.group_image_tokens * model.stored_bytes_per_image_token


def mm_cache_gb(model: ModelShape, options: RunOptions, workload: Workload, num_gpus: int) -> int:
    """GiB that hold the images of all rollouts of a server, and a tenth more. At least vLLM's default of 4.

    `verl_plugin.group_router` gives a server whole groups. Where it divides groups among more servers than there are
    groups, this is more than needed.
    """
    servers = max(1, num_gpus // options.tp)
    groups = math.ceil(workload.groups / servers)
    image_bytes = groups * workload.group_image_tokens * model.feature_bytes_per_image_token
    return max(4, math.ceil(1.1 * image_bytes / GiB))


# --------------------------------------------------------------------------------------------------------- the estimate
HOUR = VideoInfo(3600.0, 108_000, 30.0, 1920, 1080)
"""The video of a plan without rows."""
TURN_TOKENS = 256
"""Tokens that the policy writes in a turn, for the number of calls that fit. Assumed."""
QUESTION = "What does the man in the blue shirt do after he has closed the door?\n" + "\n".join(
    f"{letter}. He sits down at the table and reads a letter." for letter in "ABCD"
)


KEYS = {
    "batch_size": "data.train_batch_size",
    "rollouts": "actor_rollout_ref.rollout.n",
    "prompt_length": "data.max_prompt_length",
    "response_length": "data.max_response_length",
    "micro_batch_size": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    "min_pixels": "data.mm_processor_kwargs.min_pixels",
    "max_pixels": "data.mm_processor_kwargs.max_pixels",
    "utilization": "actor_rollout_ref.rollout.gpu_memory_utilization",
    "tp": "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "ulysses": "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    "offload": "actor_rollout_ref.actor.fsdp_config.param_offload",
    "reference": "actor_rollout_ref.actor.use_kl_loss",
    "entropy": "actor_rollout_ref.actor.entropy_coeff",
    "freeze_vision": "actor_rollout_ref.actor.freeze_vision_tower",
    "lora_rank": "actor_rollout_ref.model.lora_rank",
    "fused_head": "actor_rollout_ref.model.use_fused_kernels",
}
"""verl's option of each field."""


def recipe_options(method: Method) -> RunOptions:
    """The options of a method's recipe on real data."""
    return run_options(recipe_config(method))


def recipe_config(method: Method) -> Any:
    """A method's config group above that of all recipes; its lengths are those of `recipe_budget`.

    A method whose package has its own config groups gets what all recipes share.
    """
    from verl_video_tools.verl_plugin.hydra_groups import register  # needs Hydra; the formulas of memory do not

    register()
    folder = Path(str(files("verl_video_tools.config"))) / "video_tools"
    paths = [folder / "grpo.yaml", folder / f"{method.name}_grpo.yaml"]
    config = OmegaConf.merge(*(OmegaConf.load(path) for path in paths if path.exists()))
    budget = method.recipe_budget
    lengths = {"max_prompt_length": budget.prompt_tokens, "max_response_length": budget.response_tokens}
    return OmegaConf.merge(config, {"data": lengths})


def run_options(config: Any) -> RunOptions:
    """The options of a configuration of verl's `ppo_trainer`."""
    values = {name: OmegaConf.select(config, key) for name, key in KEYS.items()}
    options = RunOptions(
        **{name: type(getattr(RunOptions, name))(value) for name, value in values.items() if value is not None}
    )
    return replace(options, reference=True) if OmegaConf.select(config, "algorithm.use_kl_in_reward") else options


def plan_workload(method: Method, info: VideoInfo, tokens: ModelTokens, options: RunOptions) -> Workload:
    """The rollouts of a step on videos like `info`."""
    cost = estimate_cost(method, info, tokens, question=QUESTION, turn_tokens=TURN_TOKENS, group_size=options.rollouts)
    first, call = cost.initial_frames, cost.call
    limits = RolloutLimits(options.prompt_length, options.response_length, method.recipe_budget.images)
    is_shared = len(set(cost.group)) == 1
    image_tokens = [frames.num_frames * frames.frame_tokens for frames in cost.group]
    return Workload(
        groups=options.batch_size,
        rollouts=options.rollouts,
        initial_frames=first.num_frames,
        initial_tokens=first.tokens,
        initial_image_tokens=first.num_frames * first.frame_tokens,
        group_initial_image_tokens=image_tokens[0] if is_shared else sum(image_tokens),
        call_frames=call.num_frames if call else 0,
        call_tokens=call.tokens if call else 0,
        call_image_tokens=call.num_frames * call.frame_tokens if call else 0,
        max_calls=cost.calls_that_fit(limits),
        allowed_calls=cost.max_turns - 1 if call else 0,
    )


@dataclass(frozen=True)
class Estimate:
    """Of a run whose rollouts are as long as the limits allow."""

    method: str
    model: ModelShape
    cluster: Cluster
    options: RunOptions
    workload: Workload
    actor: ActorMemory
    engine: EngineMemory
    host: HostMemory


def estimate_run(
    method: Method, info: VideoInfo, model: ModelShape, tokens: ModelTokens, options: RunOptions, cluster: Cluster
) -> Estimate:
    """Estimate a run on videos like `info`."""
    workload = plan_workload(method, info, tokens, options)
    actor = actor_memory(model, options, workload, cluster.num_gpus, options.longest_tokens)
    engine = engine_memory(model, options, cluster.gpu)
    host = host_memory(model, options, workload, cluster)
    return Estimate(method.name, model, cluster, options, workload, actor, engine, host)


def estimate_config(config: Any, gpu: GPU, host_bytes: float, shm_bytes: float = math.inf) -> Estimate:
    """Estimate the run of a configuration of verl's `ppo_trainer` on videos of an hour.

    Of a run with several methods, that whose rollouts have the most images.

    Args:
        gpu: each GPU of the run.
        host_bytes: memory of each node, and `shm_bytes` of its /dev/shm.

    Raises:
        UsageError: the model is not known, or a method takes no video of an hour.
    """
    from verl_video_tools.rollout.cost import estimated_tokens
    from verl_video_tools.verl_plugin.settings import configured_methods

    trainer, options = config.trainer, run_options(config)
    method = max(configured_methods(config.actor_rollout_ref.rollout), key=lambda method: method.recipe_budget.images)
    model = find_model(config.actor_rollout_ref.model.path)
    num_gpus = int(trainer.nnodes) * int(trainer.n_gpus_per_node)
    cores = int(config.video_tools.cores_per_node)
    cluster = Cluster(gpu, num_gpus, int(trainer.n_gpus_per_node), host_bytes, cores, shm_bytes)
    return estimate_run(method, HOUR, model, estimated_tokens(options.envelope(model.factor)), options, cluster)


def warnings_of(estimate: Estimate) -> Iterator[str]:
    """What may not fit, and what to change."""
    cluster, workload, options = estimate.cluster, estimate.workload, estimate.options
    for option, size in (("tp", options.tp), ("ulysses", options.ulysses)):
        if estimate.model.heads % size or cluster.num_gpus % size:
            yield (
                f"{option}={size} does not divide {estimate.model.heads} attention heads and {cluster.num_gpus} GPUs "
                "evenly: verl or vLLM will refuse it"
            )
    yield from memory_warnings(estimate)
    if workload.initial_tokens > options.prompt_length:
        yield f"the prompt has {workload.initial_tokens:,} tokens: set data.max_prompt_length={workload.initial_tokens}"
    elif workload.call_frames and workload.max_calls < min(2, workload.allowed_calls):
        number = "only one call" if workload.max_calls else "not a single call"
        yield f"{number} of the largest size fits into a rollout's limits"


def memory_warnings(estimate: Estimate) -> Iterator[str]:
    """The same of memory alone."""
    cluster, options = estimate.cluster, estimate.options
    actor, engine, host = estimate.actor, estimate.engine, estimate.host
    gpu_bytes = cluster.gpu.memory_bytes
    if actor.total > gpu_bytes:
        shards = _ulysses_that_fits(estimate)
        fix = (
            f"set {KEYS['ulysses']}={shards}"
            if shards
            else "use shorter rollouts, a smaller micro-batch, a larger ulysses_sequence_parallel_size, or more GPUs"
        )
        yield (
            f"the update needs {_gb(actor.total)} of a GPU's {_gb(gpu_bytes)}, most of it for "
            f"{_largest(actor.parts)}: {fix}"
        )
    if engine.longest_rollouts < 1:
        yield (
            f"vLLM's cache of {_gb(engine.kv_cache)} holds no rollout of {options.longest_tokens:,} tokens: use a "
            "larger tensor_model_parallel_size or gpu_memory_utilization"
        )
    beside = actor.beside_engine(options)
    if beside + engine.budget > gpu_bytes:
        yield (
            f"while vLLM holds {_gb(engine.budget)}, {_gb(beside)} of the actor stay on a GPU of {_gb(gpu_bytes)}: "
            "offload them, or use a smaller gpu_memory_utilization"
        )
    if host.total > cluster.host_bytes:
        yield (
            f"a node needs {_gb(host.total)} of memory and has {_gb(cluster.host_bytes)}, most of it for "
            f"{_largest(host.parts)}: use a smaller batch, fewer frames, or more nodes"
        )
    if host.shm > cluster.shm_bytes:
        yield (
            f"a node needs {_gb(host.shm)} of /dev/shm and has {_gb(cluster.shm_bytes)}: start its container with "
            "--shm-size=64g, or use a smaller batch"
        )


def _ulysses_that_fits(estimate: Estimate) -> int | None:
    """The fewest GPUs that must share a sequence for an update to fit; None where no number of them is enough."""
    model, cluster, options = estimate.model, estimate.cluster, estimate.options
    for shards in range(options.ulysses + 1, cluster.num_gpus + 1):
        shared = replace(options, ulysses=shards)
        memory = actor_memory(model, shared, estimate.workload, cluster.num_gpus, options.longest_tokens)
        if not (model.heads % shards or cluster.num_gpus % shards) and memory.total <= cluster.gpu.memory_bytes:
            return shards
    return None


def as_text(estimate: Estimate) -> str:
    """A table for a terminal, in whole GB."""
    cluster, workload, model = estimate.cluster, estimate.workload, estimate.model
    actor, engine, host = estimate.actor, estimate.engine, estimate.host
    vllm = {"weights": engine.weights, "KV cache": engine.kv_cache, "all of vLLM": engine.budget}
    sections: dict[str, dict[str, float | str]] = {
        f"actor: a GPU at the peak of the update (has {_gb(cluster.gpu.memory_bytes)})": {
            **actor.parts,
            "total with context": actor.total,
        },
        "inference engine: a GPU": {**vllm, "longest rollouts at once": f"{engine.longest_rollouts:.1f}"},
        f"a node (has {_gb(cluster.host_bytes)})": {
            **host.parts,
            **{"total": host.total, "/dev/shm": host.shm},
            "mm_processor_cache_gb": str(host.mm_cache_gb),
            "agent.num_workers": str(host.workers),
        },
    }
    lines = [
        f"{estimate.method}, {model.name} ({model.num_parameters:,} parameters), "
        f"{cluster.num_gpus} x {cluster.gpu.name}: an estimate, never compared with a GPU",
        *(f"warning: {warning}" for warning in warnings_of(estimate)),
        "",
        f"{workload.groups} x {workload.rollouts} rollouts of at most {estimate.options.longest_tokens:,} tokens",
        f"initial frames: {workload.initial_frames}, with the prompt's text {workload.initial_tokens:,} tokens",
        f"a call: {workload.call_frames} frames, {workload.call_tokens:,} tokens; calls that fit: {workload.max_calls}",
    ]
    for title, rows in sections.items():
        lines.append(title)
        lines += [f"  {name:<32}{value if isinstance(value, str) else _gb(value):>10}" for name, value in rows.items()]
    return "\n".join(lines)


def _largest(parts: dict[str, float]) -> str:
    return max(parts, key=lambda name: parts[name])


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / GB:.0f} GB"
