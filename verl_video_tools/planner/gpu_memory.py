"""Memory of one GPU, in bytes, modelled: the actor while it updates, the inference engine while it generates."""

from __future__ import annotations

from dataclasses import dataclass

from verl_video_tools.planner.constants import GPU, constant
from verl_video_tools.planner.models import ModelShape
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.planner.workload import Workload


@dataclass(frozen=True)
class ActorMemory:
    """Bytes on one GPU at the peak of an update.

    Attributes:
        kept: from the forward pass for the backward pass: inputs of all layers of both parts, and pixels.
        layer: inside the layer that takes most while its gradients are computed, of either part.
        logits: before the backward pass reaches any layer, so that they are never there together with `layer`.
    """

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    kept: float
    layer: float
    logits: float
    context: float

    @property
    def resident(self) -> float:
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        moving = self.gathered + self.kept + max(self.layer, self.logits)
        return self.context + constant("fragmentation") * (self.resident + moving)


@dataclass(frozen=True)
class EngineMemory:
    """Bytes of an inference engine on one GPU, and how many of the longest rollouts its cache holds at once."""

    weights: float
    kv_cache: float
    overhead: float
    budget: float
    longest_rollouts: float


def sharded_bytes(num_parameters: int, bytes_per_parameter: float, num_gpus: int) -> float:
    """Of what FSDP divides among GPUs, on each of them."""
    return num_parameters * bytes_per_parameter / num_gpus


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
    """Those with a gradient and moments: the adapter's, or all but a frozen tower's."""
    if options.lora_rank:
        return adapter_parameters(model, options.lora_rank)
    return model.num_text_parameters if options.freeze_vision else model.num_parameters


def held_parameters(model: ModelShape, options: RunOptions) -> int:
    """The model's, and an adapter's beside them."""
    return model.num_parameters + adapter_parameters(model, options.lora_rank)


def has_reference(options: RunOptions) -> bool:
    """Whether a reference has weights of its own. With LoRA it is the actor without its adapter."""
    return options.reference and not options.lora_rank


def gathered_bytes(model: ModelShape) -> float:
    """bf16 weights that are whole on every GPU at a time: two layers, and embedding and output."""
    return 2 * (2 * layer_parameters(model) + 2 * model.vocabulary * model.hidden)


def text_kept_bytes(model: ModelShape, tokens: float) -> float:
    """With gradient checkpointing: the input of each layer of the language model, in bf16.

    Args:
        tokens: of a micro-batch on this GPU.
    """
    return 2 * tokens * model.layers * model.hidden


def text_layer_bytes(model: ModelShape, tokens: float) -> float:
    """The most inside one layer of the language model: while the gradients of its MLP are computed.

    In bf16 six tensors of the MLP's width are there then, with what attention and norms have saved: a norm its input
    in float32, and normalised. Those of queries and keys of Qwen3-VL do so as well.
    """
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    inside = 4 * (4 * model.hidden + queries + 2 * keys + 3 * model.intermediate)
    return tokens * (inside + 6 * (queries + keys) * model.qk_norm)


def vision_kept_bytes(model: ModelShape, image_tokens: float, *, frozen: bool) -> float:
    """Inputs of the vision tower's layers, what its mergers save, and pixels in bf16. A frozen tower keeps only these.

    The tower runs on all images of a sequence on every GPU, whatever Ulysses divides. A merger is an MLP without
    checkpointing: it saves its input normalised, what its first layer makes of it, and what the activation does.
    """
    width = 0 if frozen else model.vision_layers + 3 * (1 + model.deepstack)
    patches = image_tokens * model.merge**2
    return 2 * patches * width * model.vision_hidden + image_tokens * model.feature_bytes_per_image_token


def vision_layer_bytes(model: ModelShape, image_tokens: float) -> float:
    """The most inside one layer of the vision tower; also of a frozen one, somewhat too much."""
    mlp_tensors = 6 if model.gated_vision else 3
    return 2 * image_tokens * model.merge**2 * (14 * model.vision_hidden + mlp_tensors * model.vision_intermediate)


def logits_bytes(model: ModelShape, tokens: float, options: RunOptions) -> float:
    """Logits of a micro-batch on this GPU, their gradient, and what the entropy of the loss adds.

    With few tokens the gradient of the head's weight, computed from that of the logits, takes more. An adapter leaves
    the head alone.
    """
    copies = constant("logit_copies") + constant("entropy_copies") * options.entropy
    logits = 2 * tokens * model.vocabulary
    of_head = 0 if options.lora_rank else 2 * model.vocabulary * model.hidden
    return max(copies * logits, logits + of_head)


def actor_memory(
    model: ModelShape, options: RunOptions, workload: Workload, num_gpus: int, longest_tokens: int
) -> ActorMemory:
    """At the peak of an update, for which offloaded weights and optimiser come back. A reference stays on the host.

    Args:
        longest_tokens: of each sequence of the micro-batch.
    """
    trained = trained_parameters(model, options)
    tokens = options.micro_batch_size * longest_tokens / options.ulysses
    images = options.micro_batch_size * workload.longest_image_tokens
    return ActorMemory(
        weights=sharded_bytes(held_parameters(model, options), constant("weight_bytes"), num_gpus),
        gradients=sharded_bytes(trained, constant("gradient_bytes"), num_gpus),
        optimizer=sharded_bytes(trained, constant("optimizer_bytes"), num_gpus),
        gathered=gathered_bytes(model),
        kept=text_kept_bytes(model, tokens) + vision_kept_bytes(model, images, frozen=options.freeze_vision),
        layer=max(text_layer_bytes(model, tokens), vision_layer_bytes(model, images)),
        logits=logits_bytes(model, tokens, options),
        context=constant("context_bytes"),
    )


def kv_bytes_per_token(model: ModelShape, tp: int) -> float:
    """On each GPU of a server; with more GPUs than heads of keys, heads are copied."""
    heads = max(1.0, model.kv_heads / tp)
    return 2 * model.layers * heads * model.head_dim * constant("inference_bytes")


def engine_memory(model: ModelShape, options: RunOptions, gpu: GPU, longest_tokens: int) -> EngineMemory:
    """Of a vLLM engine that takes `gpu_memory_utilization` of the GPU."""
    budget = options.utilization * gpu.memory_bytes
    weights = model.num_parameters * constant("inference_bytes") / options.tp
    overhead = constant("engine_overhead_bytes")
    kv_cache = budget - weights - overhead
    longest = max(0.0, kv_cache) / (longest_tokens * kv_bytes_per_token(model, options.tp))
    return EngineMemory(weights, kv_cache, overhead, budget, longest)


def resident_while_generating(memory: ActorMemory, options: RunOptions) -> float:
    """Bytes of the actor that stay on the GPU beside the engine. Gradients are freed after the update."""
    kept = 0.0 if options.offload else memory.weights + memory.optimizer
    return kept + memory.context
