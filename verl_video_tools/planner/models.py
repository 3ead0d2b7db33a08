"""Sizes of models: of the published ones from `models.json`, of others counted on torch's meta device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a Qwen-VL model that its memory depends on.

    Attributes:
        num_parameters: all, tied ones once.
        num_vision_parameters: those of the vision tower with its mergers.
        layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary: of the language model.
        vision_layers, vision_hidden, vision_intermediate: of the vision tower.
        patch: side of a patch in pixels. A token of an image is `merge` x `merge` patches.
        temporal_patch: how often the processor repeats an image in time.
        qk_norm: queries and keys have a norm of their own (Qwen3-VL).
        gated_vision: the vision tower's MLP has a gate (Qwen2.5-VL).
        deepstack: mergers of the vision tower beside its last one (Qwen3-VL).
    """

    name: str
    num_parameters: int
    num_vision_parameters: int
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

    def shares_heads(self, size: int) -> bool:
        """Whether so many GPUs can share the heads of attention, as verl asks of Ulysses: those of keys and values are
        divided or, where they are fewer, copied."""
        return self.heads % size == 0 and (self.kv_heads % size == 0 or size % self.kv_heads == 0)

    def shares_layers(self, size: int) -> bool:
        """The same of whole layers, as vLLM divides them: heads, and both MLPs. The tower of Qwen2.5-VL has 3,420
        inside, which eight GPUs cannot share."""
        return self.shares_heads(size) and self.intermediate % size == 0 and self.vision_intermediate % size == 0


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
    for known, entry in known_models().items():
        if name.lower() in (known, entry["hub_name"].lower()):
            return _shape(known, entry["config"], entry["num_parameters"], entry["num_vision_parameters"])
    file = Path(name) / "config.json"
    if not file.is_file():
        known_names = ", ".join(known_models())
        raise UsageError(f"--model {name!r} is no folder with a config.json and none of those known: {known_names}")
    try:
        config = json.loads(file.read_text("utf-8"))
        return shape_of(name, config)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"--model {name!r}: its config.json is not that of a Qwen-VL model: {error!r}") from error


def count_parameters(config: Mapping[str, Any]) -> tuple[int, int]:
    """Parameters of transformers' model of a configuration: all, tied ones once, and those of the vision tower.

    Raises:
        KeyError: there is no `model_type`.
        ValueError: transformers knows no such model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    settings = json.loads(json.dumps(dict(config)))  # transformers takes parts of it over
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
    model.tie_weights()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return sum(sizes.values()), sum(size for name, size in sizes.items() if ".visual." in name)


def shape_of(name: str, config: Mapping[str, Any]) -> ModelShape:
    """Of a configuration whose parameters nobody has counted yet: `count_parameters` does, and raises as it does."""
    return _shape(name, config, *count_parameters(config))


def _shape(name: str, config: Mapping[str, Any], num_parameters: int, num_vision_parameters: int) -> ModelShape:
    text, vision = config.get("text_config", config), config["vision_config"]
    is_qwen3 = config["model_type"].startswith("qwen3")
    return ModelShape(
        name=name,
        num_parameters=num_parameters,
        num_vision_parameters=num_vision_parameters,
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        heads=text["num_attention_heads"],
        kv_heads=text["num_key_value_heads"],
        head_dim=text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"],
        intermediate=text["intermediate_size"],
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
    )
