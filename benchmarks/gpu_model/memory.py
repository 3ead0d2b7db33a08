"""Peak memory of an update on a CPU, beside the plan: `python -m benchmarks.gpu_model.memory` prints a table of docs.

Models of both families with random weights and the proportions of real ones, in bfloat16 with gradient checkpointing,
as verl trains them. Bytes are counted by torch's profiler, and are the same on every run. Weights and their gradients
are there before, and do not count. The head of the whole update is the product with the vocabulary and a cross entropy
that allocates what flash-attn's does.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.entropy import CrossEntropy, peak_bytes
from benchmarks.gpu_model.actor import positions, text_calls, vision_calls
from benchmarks.gpu_model.random_model import configuration, random_model
from verl_video_tools.launch.plan import (
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


@dataclass(frozen=True)
class Line:
    """Bytes of a part of an update, beyond what was there before."""

    family: str
    part: str
    tokens: int
    images: int
    sizes: Sizes
    measured: int
    planned: float

    @property
    def error(self) -> float:
        """Of the plan."""
        return self.planned / self.measured - 1


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


def whole_update(model: Any, shape: ModelShape, tokens: int, images: int) -> Callable[[], None]:
    """Of one sequence whose first tokens are images: vision tower, language model, log-probabilities, and back."""
    height, width = GRID
    grid_N3 = torch.tensor([[1, height, width]] * images)
    size = 3 * shape.temporal_patch * shape.patch**2
    pixels = torch.randn(images * height * width, size, dtype=torch.bfloat16)
    ids_1L = torch.full((1, tokens), IMAGE_ID + 4)
    ids_1L[0, : images * height * width // shape.merge**2] = IMAGE_ID
    labels = torch.randint(shape.vocabulary, (tokens,))

    def losses() -> torch.Tensor:
        hidden_1LC = model.model(
            input_ids=ids_1L,
            position_ids=positions([tokens], "cpu"),
            pixel_values=pixels.clone(),
            image_grid_thw=grid_N3,
            mm_token_type_ids=(ids_1L == IMAGE_ID).int(),
            use_cache=False,
        ).last_hidden_state
        found: torch.Tensor = CrossEntropy.apply(model.lm_head(hidden_1LC[0]), labels, False, BLOCK_ROWS)
        return found

    return lambda: losses().sum().backward()


def measure(family: str, tokens: int, images: int, sizes: Sizes) -> Iterator[Line]:
    """Language model, vision tower, and the whole update of one model."""
    config = scaled_configuration(family, sizes)
    shape, model = shape_of(family, config), random_model(config, "cpu", "sdpa")
    image_tokens = images * GRID[0] * GRID[1] // shape.merge**2
    kept, vision_kept = text_saved_bytes(shape, tokens), vision_saved_bytes(shape, image_tokens, frozen=False)
    layer, vision_layer = text_layer_bytes(shape, tokens), vision_layer_bytes(shape, image_tokens)
    largest = max(layer, vision_layer, logits_bytes(shape, tokens, RunOptions()))
    parts = {
        "language model": (text_calls(model, shape, tokens, "cpu")[1], kept + layer),
        "vision tower": (vision_calls(model, shape, images, GRID, "cpu")[1], vision_kept + vision_layer),
        "whole": (whole_update(model, shape, tokens, images), kept + vision_kept + largest),
    }
    for part, (update, planned) in parts.items():
        update()  # what is made once, such as positions
        yield Line(family, part, tokens, images, sizes, peak_bytes(update), planned)
    gc.collect()


LARGE = Sizes(hidden=1024, layers=8, head_dim=128, intermediate=4096, vocabulary=16_384, vision_hidden=640)
UNSEEN = Sizes(hidden=768, layers=6, head_dim=64, intermediate=3072, vocabulary=24_000, vision_hidden=480)
CASES = ((512, 3, Sizes()), (1536, 20, Sizes()), (512, 4, LARGE), (640, 5, UNSEEN))
"""Tokens, images and sizes. The last was measured once the formula was final."""


HEAD = (
    "| family | width x layers, size of a head | tokens | images | part | measured | planned | error |\n"
    "|---|---|---|---|---|---|---|---|"
)


def row(line: Line) -> str:
    """Markdown."""
    sizes = line.sizes
    return (
        f"| {line.family} | {sizes.hidden} x {sizes.layers}, {sizes.head_dim} | {line.tokens:,} | {line.images} "
        f"| {line.part} | {line.measured / 1e6:.1f} MB | {line.planned / 1e6:.1f} MB | {line.error:+.1%} |"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(HEAD)
    for family in PUBLISHED:
        for case in CASES:
            for line in measure(family, *case):
                print(row(line), flush=True)
