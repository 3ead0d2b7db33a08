"""The actor's parts on one device: vision tower, language model, head with its entropy variants, packing.

Each is what a GPU of a real run does in a micro-batch of one rollout. With Ulysses it holds its share of the tokens;
here its attention sees these alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from benchmarks.entropy import VARIANTS, step
from benchmarks.gpu_model.lengths import Lengths
from benchmarks.gpu_model.meter import Meter
from verl_video_tools.launch.plan import (
    ModelShape,
    RunOptions,
    logits_bytes,
    text_layer_bytes,
    text_saved_bytes,
    vision_layer_bytes,
    vision_saved_bytes,
)

NUM_PACKED = 4
Calls = tuple[Callable[[], torch.Tensor], Callable[[], None]]
"""A forward pass, and one with gradients."""


def vision_calls(model: Any, shape: ModelShape, images: int, grid: tuple[int, int], device: str) -> Calls:
    """The tower over `images` images of `grid` patches: forward alone, as for log-probabilities, and with gradients.

    Qwen3-VL's further features count as the language model takes them: the gradients of all are computed.
    """
    tower = model.model.visual
    height, width = grid
    grid_N3 = torch.tensor([[1, height, width]] * images, device=device)
    size = 3 * shape.temporal_patch * shape.patch**2
    pixels = torch.randn(images * height * width, size, device=device, dtype=torch.bfloat16)

    def features() -> list[torch.Tensor]:
        found = tower(pixels.clone(), grid_thw=grid_N3)  # each micro-batch has its own
        return [found.pooler_output, *(getattr(found, "deepstack_features", None) or [])]

    def forward() -> torch.Tensor:
        return features()[0]

    def update() -> None:
        torch.stack([each.float().mean() for each in features()]).sum().backward()

    return forward, update


def measure_vision(meter: Meter, model: Any, shape: ModelShape, lengths: Lengths) -> None:
    """The tower over all images of a rollout."""
    forward, update = vision_calls(model, shape, lengths.images, lengths.grid, meter.device)
    case = f"{lengths.method}, {lengths.images} images, {lengths.image_tokens:,} tokens"
    memory = vision_saved_bytes(shape, lengths.image_tokens, frozen=False)
    memory += vision_layer_bytes(shape, lengths.image_tokens)
    meter.add("vision tower, forward", case, torch.no_grad()(forward), tokens=lengths.image_tokens)
    meter.add("vision tower, update", case, update, memory, lengths.image_tokens)


def positions(lengths: list[int], device: str) -> torch.Tensor:
    """(4, 1, tokens): those of the text, from 0 in each sequence, then as time, height and width."""
    ids = torch.cat([torch.arange(length) for length in lengths]).to(device)
    return ids.expand(4, 1, -1)


def text_calls(model: Any, shape: ModelShape, tokens: int, device: str) -> Calls:
    """The layers of the language model over one sequence, without its head."""
    text = model.model.language_model
    embedded_1LC = torch.randn(1, tokens, shape.hidden, device=device, dtype=torch.bfloat16)
    embedded_1LC.requires_grad_()
    ids = positions([tokens], device)

    def forward() -> torch.Tensor:
        found: torch.Tensor = text(inputs_embeds=embedded_1LC, position_ids=ids, use_cache=False).last_hidden_state
        return found

    def update() -> None:
        forward().float().mean().backward()

    return forward, update


def measure_text(meter: Meter, model: Any, shape: ModelShape, lengths: Lengths) -> None:
    """The layers over a rollout."""
    forward, update = text_calls(model, shape, lengths.tokens, meter.device)
    case = f"{lengths.method}, {lengths.tokens:,} tokens"
    meter.add("language model, forward", case, torch.no_grad()(forward), tokens=lengths.tokens)
    memory = text_saved_bytes(shape, lengths.tokens) + text_layer_bytes(shape, lengths.tokens)
    meter.add("language model, update", case, update, memory, lengths.tokens)


def measure_head(meter: Meter, model: Any, shape: ModelShape, lengths: Lengths) -> None:
    """Log-probabilities and entropy, forward and backward, by verl's own code with each of its options.

    `launch.plan` has the memory of verl's default.
    """
    if not find_spec("verl"):
        meter.skip("head", "verl is not installed")
        return
    hidden = torch.randn(lengths.tokens, shape.hidden, device=meter.device, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(shape.vocabulary, (lengths.tokens,), device=meter.device)
    weights = model.lm_head.weight
    planned = {
        "log-probabilities alone": logits_bytes(shape, lengths.tokens, RunOptions()),
        "verl's default, compiled": logits_bytes(shape, lengths.tokens, RunOptions(entropy=True)),
    }
    for name, variant in VARIANTS.items():
        if variant.compiled and meter.device == "cpu":
            continue  # nothing is compiled there; benchmarks.entropy measures it
        run = step(variant, meter.device)
        case = f"{lengths.method}, {lengths.tokens:,} tokens"
        meter.add(f"head: {name}", case, lambda: run(hidden, weights, labels), planned.get(name))  # noqa: B023 - called at once


def measure_packing(meter: Meter, model: Any, shape: ModelShape, lengths: Lengths, *, packs: bool) -> None:
    """Sequences of very different lengths as one, and padded to the longest; the forward pass of the language model.

    Args:
        packs: whether the model's attention keeps packed sequences apart; the others' time says what padding costs.
    """
    text = model.model.language_model
    longest = max(16, lengths.tokens // 2)
    each = [longest // 2**number for number in range(NUM_PACKED)]

    def run(ids: torch.Tensor, embedded: torch.Tensor, mask: torch.Tensor | None) -> None:
        with torch.no_grad():
            text(inputs_embeds=embedded, position_ids=ids, attention_mask=mask, use_cache=False)

    def random(batch: int, length: int) -> torch.Tensor:
        return torch.randn(batch, length, shape.hidden, device=meter.device, dtype=torch.bfloat16)

    case = f"{lengths.method}, {NUM_PACKED} sequences, {sum(each):,} tokens"
    padded_ids = positions([longest], meter.device).expand(4, NUM_PACKED, -1)
    mask = torch.tensor([[1] * length + [0] * (longest - length) for length in each], device=meter.device)
    padded = random(NUM_PACKED, longest)
    meter.add("language model, padded", case, lambda: run(padded_ids, padded, mask))
    if not packs:
        meter.skip("language model, packed", "flash-attn is not installed")
        return
    packed_ids, packed = positions(each, meter.device), random(1, sum(each))
    meter.add("language model, packed", case, lambda: run(packed_ids, packed, None))
