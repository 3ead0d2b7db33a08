"""Peak memory of an update beside the plan, of models of both families with random weights.

    python -m benchmarks.gpu_model.memory            # on a CPU: a table of docs
    python -m benchmarks.gpu_model.memory --fused    # on a GPU: published widths with few layers; a part of first-gpu

They are in bfloat16 with gradient checkpointing, as verl trains them. On a CPU they have the proportions of real ones,
bytes are counted by torch's profiler, and are the same on every run. Weights and their gradients are there before, and
do not count. The head of the whole update is the product with the vocabulary and a cross entropy that allocates what
flash-attn's does, or verl's fused head, which is loaded without the rest of verl, since that imports Ray.
"""

from __future__ import annotations

import argparse
import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch

from benchmarks.entropy import CrossEntropy
from benchmarks.gpu_model.actor import positions, text_calls, vision_calls
from benchmarks.gpu_model.meter import Measured, Meter, section
from benchmarks.gpu_model.random_model import configuration, random_model
from verl_video_tools.launch.plan import (
    FRAGMENTATION,
    FUSED_BYTES,
    FUSED_TOKENS,
    ModelShape,
    RunOptions,
    logits_bytes,
    shape_of,
    text_layer_bytes,
    text_saved_bytes,
    vision_layer_bytes,
    vision_saved_bytes,
)

PUBLISHED = {"qwen2_5_vl": "qwen2.5-vl-7b", "qwen3_vl": "qwen3-vl-8b"}
GRID = (12, 20)
"""Patches of an image: LongVT's 280x168 with 14 pixels a patch."""
IMAGE_ID = 5
SPECIAL_LAYERS = {"qwen2_5_vl": "fullatt_block_indexes", "qwen3_vl": "deepstack_visual_indexes"}
"""Those of the tower that see whole images, or whose output the language model gets, too."""
BLOCK_ROWS = 4
"""Of the cross entropy: flash-attn has its blocks in registers, so that they must not count here."""


@dataclass(frozen=True)
class Sizes:
    """Of the language model; those of the vision tower in relation to its width follow the published ones."""

    hidden: int = 512
    layers: int = 4
    head_dim: int = 64
    intermediate: int = 2048
    vocabulary: int = 8192
    vision_hidden: int = 320


def scaled_configuration(family: str, sizes: Sizes) -> dict[str, Any]:
    """A published configuration with other sizes."""
    config = configuration(PUBLISHED[family])
    text, vision = config["text_config"], config["vision_config"]
    ratio = vision["intermediate_size"] / vision["hidden_size"]
    heads, half = sizes.hidden // sizes.head_dim, sizes.head_dim // 2
    text.update(
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        head_dim=sizes.head_dim,
        intermediate_size=sizes.intermediate,
        vocab_size=sizes.vocabulary,
    )
    text |= dict.fromkeys(("bos_token_id", "eos_token_id"), 1)
    text["rope_parameters"]["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]
    vision.update(
        hidden_size=sizes.vision_hidden,
        depth=sizes.layers,
        intermediate_size=round(sizes.vision_hidden * ratio / 16) * 16,
        num_heads=4,
        out_hidden_size=sizes.hidden,
    )
    if family == "qwen3_vl":
        vision["deepstack_visual_indexes"] = [0, 1, 2]
    config |= {"image_token_id": IMAGE_ID, "video_token_id": IMAGE_ID + 1}
    config |= {"vision_start_token_id": IMAGE_ID + 2, "vision_end_token_id": IMAGE_ID + 3}
    return config


def few_layers(family: str, layers: int) -> dict[str, Any]:
    """A published configuration with its widths and this many layers in each part; the tower's last one is special."""
    config = configuration(PUBLISHED[family])
    config["text_config"]["num_hidden_layers"] = config["vision_config"]["depth"] = layers
    config["vision_config"][SPECIAL_LAYERS[family]] = [layers - 1]
    config["image_token_id"] = IMAGE_ID
    return config


def load_fused_head() -> Any:
    """verl's `FusedLinearForPPO()`, or None where verl is not installed."""
    package = find_spec("verl")
    if package is None or package.origin is None:
        return None
    file = Path(package.origin).parent / "utils" / "experimental" / "torch_functional.py"
    spec = spec_from_file_location("benchmarks.gpu_model.fused_head", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FusedLinearForPPO()


def head_losses(model: Any, hidden_1LC: torch.Tensor, labels_L: torch.Tensor, fused: Any) -> torch.Tensor:
    """Log-probabilities, or their negatives, of one sequence."""
    if fused is not None:
        found: torch.Tensor = fused(hidden_1LC, model.lm_head.weight, labels_L[None])[0]
    else:
        found = CrossEntropy.apply(model.lm_head(hidden_1LC[0]), labels_L, False, BLOCK_ROWS)
    return found


def head_call(model: Any, shape: ModelShape, tokens: int, device: str, fused: Any) -> Callable[[], None]:
    """Forward and backward of the head alone."""
    hidden_1LC = torch.randn(1, tokens, shape.hidden, device=device, dtype=torch.bfloat16, requires_grad=True)
    labels_L = torch.randint(shape.vocabulary, (tokens,), device=device)

    def update() -> None:
        hidden_1LC.grad = None
        head_losses(model, hidden_1LC, labels_L, fused).sum().backward()

    return update


def whole_update(
    model: Any, shape: ModelShape, tokens: int, images: int, device: str, fused: Any
) -> Callable[[], None]:
    """Of one sequence whose first tokens are images: vision tower, language model, log-probabilities, and back."""
    height, width = GRID
    grid_N3 = torch.tensor([[1, height, width]] * images, device=device)
    size = 3 * shape.temporal_patch * shape.patch**2
    pixels = torch.randn(images * height * width, size, device=device, dtype=torch.bfloat16)
    ids_1L = torch.full((1, tokens), IMAGE_ID + 4, device=device)
    ids_1L[0, : images * height * width // shape.merge**2] = IMAGE_ID
    labels_L = torch.randint(shape.vocabulary, (tokens,), device=device)

    def update() -> None:
        hidden_1LC = model.model(
            input_ids=ids_1L,
            position_ids=positions([tokens], device),
            pixel_values=pixels.clone(),
            image_grid_thw=grid_N3,
            mm_token_type_ids=(ids_1L == IMAGE_ID).int(),
            use_cache=False,
        ).last_hidden_state
        head_losses(model, hidden_1LC, labels_L, fused).sum().backward()

    return update


def measure(
    meter: Meter, family: str, config: dict[str, Any], tokens: int, images: int, fused: Any = None
) -> dict[str, Measured]:
    """Language model, vision tower, the head if it is fused, and the whole update of one model, by part."""
    device = meter.device
    shape, model = shape_of(family, config), random_model(config, device, "sdpa")
    image_tokens = images * GRID[0] * GRID[1] // shape.merge**2
    kept, vision_kept = text_saved_bytes(shape, tokens), vision_saved_bytes(shape, image_tokens, frozen=False)
    layer, vision_layer = text_layer_bytes(shape, tokens), vision_layer_bytes(shape, image_tokens)
    head = logits_bytes(shape, tokens, RunOptions(fused_head=fused is not None))
    inside = max(layer, vision_layer, head)
    parts = {
        "language model": (text_calls(model, shape, tokens, device)[1], kept + layer, tokens),
        "vision tower": (vision_calls(model, shape, images, GRID, device)[1], vision_kept + vision_layer, image_tokens),
        "fused head": (head_call(model, shape, tokens, device, fused), head, tokens),
        "whole": (whole_update(model, shape, tokens, images, device, fused), kept + vision_kept + inside, tokens),
    }
    if fused is None:
        del parts["fused head"]
    case = f"{family}, {shape.hidden} x {shape.layers}, {images} images, {tokens:,} tokens"
    before = len(meter.lines)
    for part, (update, planned, tokens_of_part) in parts.items():
        meter.add(part, case, update, planned, tokens_of_part)
    gc.collect()
    return {line.part: line for line in meter.lines[before:]}


LARGE = Sizes(hidden=1024, layers=8, head_dim=128, intermediate=4096, vocabulary=16_384, vision_hidden=640)
UNSEEN = Sizes(hidden=768, layers=6, head_dim=64, intermediate=3072, vocabulary=24_000, vision_hidden=480)
CASES = ((512, 3, Sizes()), (1536, 20, Sizes()), (512, 4, LARGE), (640, 5, UNSEEN))
"""Tokens, images and sizes. The last was measured once the formula was final."""
SMALL = Sizes(hidden=128, intermediate=512, vocabulary=2048, vision_hidden=128)
"""For processors that take seconds for a product in bfloat16."""
FEW_LAYERS, FEW_TOKENS, FEW_IMAGES = 2, 16_384, 160
"""On a GPU."""


def measure_fused(device: str) -> str:
    """A section of the page of first-gpu, with the constants of the plan that follow."""
    meter, fused = Meter(device), load_fused_head()
    constants: list[Sequence[str]] = []
    for family in PUBLISHED:
        config, tokens, images = scaled_configuration(family, SMALL), 128, 1
        if device == "cuda":
            config, tokens, images = few_layers(family, FEW_LAYERS), FEW_TOKENS, FEW_IMAGES
        lines = measure(meter, family, config, tokens, images, fused)
        if fused is not None:
            head, logits = lines["fused head"], min(tokens, FUSED_TOKENS) * config["text_config"]["vocab_size"]
            per_logit = FUSED_BYTES + ((head.extra_bytes or math.nan) - (head.planned_bytes or 0)) / logits
            constants.append((f"FUSED_BYTES, {family}", str(FUSED_BYTES), f"{per_logit:.1f}"))
        if device == "cuda":
            reserved = torch.cuda.max_memory_reserved() / torch.cuda.max_memory_allocated()
            constants.append((f"FRAGMENTATION, {family}", str(FRAGMENTATION), f"{reserved:.2f}"))
    if fused is None:
        meter.skip("fused head", "verl is not installed; the whole update has all logits")
    return section(f"Memory of an update on {device}", meter.lines, constants)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fused", action="store_true", help="the part `memory` of first-gpu")
    fused = parser.parse_args(arguments).fused
    torch.set_num_threads(1)
    if fused:
        print(measure_fused("cuda" if torch.cuda.is_available() else "cpu"))
        return
    meter = Meter("cpu")
    for family in PUBLISHED:
        for tokens, images, sizes in CASES:
            measure(meter, family, scaled_configuration(family, sizes), tokens, images)
    print(section("Memory of an update", meter.lines))


if __name__ == "__main__":
    main()
