"""The model's folder or name: tokenizer and processor are loaded, weights only looked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from PIL import Image

from verl_video_tools.core.check import Check, Status, one_line
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.planned_run import RunModel, load_run_model

_FIX = "MODEL_PATH: the folder of a model with its processor, or its name on the Hugging Face hub"
_PIXELS_FIX = "data.mm_processor_kwargs.min_pixels and max_pixels; or " + _FIX


def load_model(model: DictConfig, data: DictConfig, stand_in: str | None) -> tuple[RunModel | None, list[Check]]:
    """Tokenizer and processor of the run.

    Args:
        model: the section `model` of the configuration.
        data: the section `data`.
        stand_in: folder of the model that the run's own will be trained from, where the recipe does that first.
    """
    checks = []
    source: str | None = None
    if stand_in is not None:
        detail = f"not there yet: the recipe trains it first; tokenizer and processor are those of {stand_in}"
        checks.append(Check("model", "folder", Status.WARNING, str(model.path), detail))
        source = stand_in
    try:
        loaded = load_run_model(model, data, source)
    except UsageError as error:
        return None, [
            *checks,
            Check(
                "model",
                "processor",
                Status.FAILED,
                str(model.path),
                str(error),
                _PIXELS_FIX if "pixels" in str(error) else _FIX,
            ),
        ]
    if stand_in is None:
        checks.append(check_weights(loaded.source))
    envelope = loaded.tokens.envelope
    found = f"{type(loaded.processor).__name__}, images of {envelope.min_pixels:,} to {envelope.max_pixels:,} pixels"
    if problem := _processes_differently(loaded):
        checks.append(Check("model", "processor", Status.FAILED, found, problem, _FIX))
    else:
        checks.append(Check("model", "processor", Status.OK, found))
    return loaded, checks


def check_weights(source: str) -> Check:
    """Whether the files of weights are there; of a name on the hub they are downloaded by the run."""
    folder = Path(source)
    if not folder.is_dir():
        return Check("model", "weights", Status.OK, source, "on the hub; the run downloads what its cache lacks")
    if not (folder / "config.json").is_file():
        return Check("model", "weights", Status.FAILED, source, "no config.json in this folder", _FIX)
    index = folder / "model.safetensors.index.json"
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values())) if index.is_file() else []
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return Check("model", "weights", Status.FAILED, str(index), one_line(error), "download the model again")
    if not names:
        names = [path.name for pattern in ("*.safetensors", "*.bin") for path in sorted(folder.glob(pattern))]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        detail = f"missing: {_few(missing)}" if missing else "no file of weights"
        return Check(
            "model",
            "weights",
            Status.FAILED,
            source,
            detail,
            f"download the model again: hf download ... --local-dir {source}",
        )
    return Check("model", "weights", Status.OK, source, f"files, not loaded: {_few(names)}")


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])


def _processes_differently(model: RunModel) -> str:
    """What is wrong with the tokens of an image that the processor makes; empty where they are as we count them."""
    envelope = model.tokens.envelope
    side = envelope.factor * max(1, round((envelope.min_pixels**0.5) / envelope.factor + 0.5))
    image = Image.fromarray(np.zeros((side, side, 3), np.uint8))
    processor = model.processor.image_processor
    try:
        made = processor(images=[image], return_tensors="pt", **model.pixel_options)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        return f"it fails on an image of {side}x{side} pixels: {one_line(error)}"
    tokens = int(made["image_grid_thw"].prod()) // processor.merge_size**2
    expected = (side // envelope.factor) ** 2
    if tokens == expected or side * side > envelope.max_pixels:
        return ""
    return f"an image of {side}x{side} pixels has {tokens} tokens, and {expected} were expected"
