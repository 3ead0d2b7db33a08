"""Gradients of a model as wide as a released one, packed as on a GPU without flash-attn, against the model unpacked.

    python -m tests.gpu.wide MODEL WIDTH TOKENS FOLDER

Four sequences with pictures, TOKENS in all, pass a model with random weights in bfloat16 and two layers in each part.
MODEL is `qwen2_5_vl` or `qwen3_vl`; WIDTH is `released` (7B or 8B), or `small`. First each sequence passes the model of
transformers alone, with attention by `sdpa` and all logits. Then verl's forward pass takes all of them packed, with
this plugin's attention above a double of torch's kernel, and with the fused head.

It writes FOLDER/found.json: see `Found`. A program, since verl's packing replaces the attention of transformers'
classes.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from verl.models.transformers.monkey_patch import apply_monkey_patch

from benchmarks.gpu_model.memory import GRID, IMAGE_ID, SPECIAL_LAYERS, Sizes, few_layers, scaled_configuration
from benchmarks.gpu_model.random_model import random_model
from tests.verl_plugin.varlen_kernel import kernel_on_cpus, relative_error
from verl_video_tools.verl_plugin import packed_attention, varlen

LAYERS = 2
SMALL = Sizes(hidden=256, layers=LAYERS, head_dim=64, intermediate=512, vocabulary=2048, vision_hidden=160)
SHARES = (0.3, 0.26, 0.24, 0.2)
"""Of the tokens that each sequence has."""
IMAGE_SHARE = 0.6


@dataclass
class Found:
    """Of both ways.

    Attributes:
        log_prob_difference: mean over all tokens.
        gradient_errors: relative, by weight. Those of `LayerNorm` are left out: on CPUs torch adds up the gradient of
            its bias in bfloat16, and loses a sixth of it with two thousand rows in one call.
        forward_calls: of the kernel, with recomputation; the number of layers of both parts is `layers`.
        peak_gb: most memory that the process had during both updates.
    """

    tokens: int
    layers: int
    log_prob_difference: float
    gradient_errors: dict[str, float]
    forward_calls: int
    peak_gb: float


@dataclass(frozen=True)
class Row:
    """A sequence: text, then its pictures' tokens, then text; as many positions as tokens, without a picture's axes."""

    ids_L: torch.Tensor
    pixels_PC: torch.Tensor
    grid_N3: torch.Tensor
    weights_L: torch.Tensor


def model_configuration(family: str, width: str) -> dict[str, Any]:
    """With one layer of the tower that sees whole pictures, or whose output the language model gets, too."""
    if width == "released":
        return few_layers(family, LAYERS)
    config = scaled_configuration(family, SMALL)
    config["vision_config"][SPECIAL_LAYERS[family]] = [LAYERS - 1]
    return config


def make_rows(config: dict[str, Any], tokens: int) -> list[Row]:
    generator = torch.Generator().manual_seed(1)
    vision, vocabulary = config["vision_config"], config["text_config"]["vocab_size"]
    patches = GRID[0] * GRID[1]
    per_image = patches // vision["spatial_merge_size"] ** 2
    size = 3 * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    rows = []
    for share in SHARES:
        length = int(share * tokens)
        images = max(1, int(IMAGE_SHARE * length / per_image))
        ids_L = torch.randint(IMAGE_ID + 10, vocabulary, (length,), generator=generator)
        ids_L[8 : 8 + images * per_image] = IMAGE_ID
        weights_L = torch.rand(length, generator=generator) / length
        weights_L[-1] = 0  # its target is the first token of the next sequence, or none
        pixels_PC = torch.randn(images * patches, size, generator=generator).bfloat16()
        rows.append(Row(ids_L, pixels_PC, torch.tensor([[1, *GRID]] * images), weights_L))
    return rows


def inputs_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Of the sequences one after the other."""
    ids_1L = torch.cat([row.ids_L for row in rows])[None]
    positions = torch.cat([torch.arange(len(row.ids_L)) for row in rows])
    return {
        "input_ids": ids_1L,
        "position_ids": positions.expand(4, 1, -1),
        "pixel_values": torch.cat([row.pixels_PC for row in rows]),
        "image_grid_thw": torch.cat([row.grid_N3 for row in rows]),
        "use_cache": False,
    }


def unpacked(model: Any, rows: Sequence[Row]) -> torch.Tensor:
    """Log-probabilities of each sequence's next tokens, (tokens of all); the model has the gradients of their sum."""
    found = []
    for row in rows:
        inputs = inputs_of([row])
        kinds = (inputs["input_ids"] == IMAGE_ID).int()
        logits_LV = model(**inputs, mm_token_type_ids=kinds).logits[0].float()
        log_probs_L = logits_LV.log_softmax(-1).gather(1, row.ids_L.roll(-1)[:, None])[:, 0]
        (log_probs_L * row.weights_L).sum().backward()
        found.append(log_probs_L.detach())
    return torch.cat(found)


def packed(model: Any, rows: Sequence[Row]) -> torch.Tensor:
    """The same by verl's fused head."""
    inputs = inputs_of(rows)
    shifted = torch.cat([row.ids_L.roll(-1) for row in rows])[None]
    log_probs_L = model(**inputs, attention_mask=None, shift_labels=shifted, temperature=1.0).log_probs[0]
    (log_probs_L * torch.cat([row.weights_L for row in rows])).sum().backward()
    return log_probs_L.detach()


def take_gradients(model: Any) -> dict[str, torch.Tensor]:
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = None
    return gradients


def compare(family: str, width: str, tokens: int, folder: Path) -> Found:
    """The first gradients wait in a file, for 18 GB would not hold those of both ways beside a model."""
    config, file = model_configuration(family, width), folder / "unpacked.pt"
    rows = make_rows(config, tokens)
    model = random_model(config, "cpu", "sdpa")
    expected = unpacked(model, rows)
    torch.save(take_gradients(model), file)
    del model
    gc.collect()

    packed_attention.register()
    model = random_model(config, "cpu", packed_attention.NAME)
    apply_monkey_patch(model, use_remove_padding=True, use_fused_kernels=True, fused_kernels_backend="torch")
    packed_attention.use(model)
    with kernel_on_cpus() as calls:
        found = packed(model, rows)
    gradients = take_gradients(model)
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return Found(
        tokens=len(found),
        layers=2 * LAYERS,
        log_prob_difference=float((found - expected).abs().mean()),
        gradient_errors={
            name: relative_error(gradient.float(), gradients[name].float())
            for name, gradient in torch.load(file, mmap=True).items()
            if not isinstance(model.get_submodule(name.rpartition(".")[0]), torch.nn.LayerNorm)
        },
        forward_calls=calls.forward,
        peak_gb=peak_gb,
    )


def main() -> None:
    """Command line: see the module's docstring."""
    family, width, tokens, folder = sys.argv[1:]
    pytest.MonkeyPatch().setattr(varlen, "has_kernel", lambda device: True)
    if width == "released":
        torch.set_num_threads(os.cpu_count() or 1)
    found = compare(family, width, int(tokens), Path(folder))
    (Path(folder) / "found.json").write_text(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
