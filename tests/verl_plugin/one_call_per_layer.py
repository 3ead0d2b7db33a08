"""A rank takes gradients by verl's engine as on a GPU without flash-attn, above a double of torch's kernel.

    torchrun --standalone --nproc_per_node=1 -m tests.verl_plugin.one_call_per_layer MODEL_DIR FOLDER

It writes FOLDER/found.pt, by the name of the run: log-probabilities, entropies and the gradient of every weight, as
`packing.gradients` gives them, and how often the kernel was called. The first run has other attention, which sees each
dialogue, and each window of each picture, alone. It rounds as the kernel does. A program, since verl's packing replaces
the attention of transformers' classes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModelForImageTextToText
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tests.verl_plugin.packing import FUSED, gradients
from tests.verl_plugin.varlen_kernel import kernel_on_cpus
from verl_video_tools.verl_plugin import varlen

UNPACKED = "rounded_by_hand"
MICRO_BATCHES = {"packed": 2, "packed, one by one": 4, "packed" + FUSED: 2}
"""Of a run over four dialogues."""
TOWER_HEADS = {"qwen2_5_vl": 80, "qwen3_vl": 72}
"""Size of the vision tower's heads; that of the language model's is 128. Both are those of released models."""
LAYERS = 2
"""Of the language model."""
_TEXT_HEAD = 128
_MROPE = {"qwen2_5_vl": [16, 24, 24], "qwen3_vl": [24, 20, 20]}


def make_model_with_released_heads(stock: Path, family: str, folder: Path) -> None:
    """The tiny model of `stock` with released models' heads: grouped queries, and few of them."""
    shutil.copytree(stock, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    config: Any = AutoConfig.from_pretrained(stock)
    text, vision = config.text_config, config.vision_config
    text.num_attention_heads, text.num_key_value_heads = 4, 2
    text.hidden_size = vision.out_hidden_size = 4 * _TEXT_HEAD
    text.num_hidden_layers = LAYERS
    if kinds := getattr(text, "layer_types", None):
        text.layer_types = kinds[:LAYERS]
    if family == "qwen3_vl":
        text.head_dim = _TEXT_HEAD
    text.rope_parameters["mrope_section"] = _MROPE[family]
    vision.hidden_size, vision.num_heads = 2 * TOWER_HEADS[family], 2
    torch.manual_seed(0)
    AutoModelForImageTextToText.from_config(config, dtype=torch.float32).save_pretrained(folder)


def rounded(module: Any, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, **options: Any) -> Any:
    """Attention in float32 of inputs in bfloat16, with its output and all gradients in bfloat16 as well."""
    halves = (it.bfloat16().float() for it in (q, k, v))
    attended, weights = sdpa_attention_forward(module, *halves, attention_mask, **options)
    return attended.bfloat16().float(), weights


def main() -> None:
    """Command line: see the module's docstring."""
    model_dir, folder = Path(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    AttentionInterface.register(UNPACKED, rounded)
    AttentionMaskInterface.register(UNPACKED, sdpa_mask)
    pytest.MonkeyPatch().setattr(varlen, "has_kernel", lambda device: True)
    found = {"unpacked": gradients(model_dir, "fp32", attention=UNPACKED, micro_batch_size=1)}
    for name, micro_batches in MICRO_BATCHES.items():
        with kernel_on_cpus() as calls:
            found[name] = gradients(
                model_dir,
                "fp32",
                attention="flash_attention_2",
                micro_batch_size=4 // micro_batches,
                fused=name.endswith(FUSED),
            )
        found[name] |= {"forward calls": calls.forward, "backward calls": calls.backward}
    torch.save(found, folder / "found.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
