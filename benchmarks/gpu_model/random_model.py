"""Models of published sizes with random weights: only their configurations are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.plan import known_models
from verl_video_tools.synthetic import base_model_dir

TINY = "tiny"
_QWEN3_VL = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
_QWEN3_5 = {
    "rope_type": "default",
    "rope_theta": 1e7,
    "mrope_section": [11, 11, 10],
    "mrope_interleaved": True,
    "partial_rotary_factor": 0.25,
}
ROPE = {
    "qwen2_5_vl": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_moe": _QWEN3_VL,
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
}
"""Rotary positions, which no size follows from, so that `launch.plan` leaves them out of the configurations it keeps.

From `config.json` of Qwen/Qwen2.5-VL-7B-Instruct, Qwen/Qwen3-VL-8B-Instruct and Qwen/Qwen3.5-9B.
"""


def configuration(name: str) -> dict[str, Any]:
    """Of `tiny`, of a model that `vvt estimate` knows, or of a folder with `config.json`.

    Raises:
        UsageError: it is none of these.
    """
    if name == TINY:
        name = str(base_model_dir())
    for known, entry in known_models().items():
        if name.lower() in (known, entry["hub_name"].lower()):
            config: dict[str, Any] = json.loads(json.dumps(entry["config"]))
            config["text_config"]["rope_parameters"] = dict(ROPE[config["model_type"]])
            return config
    file = Path(name) / "config.json"
    if not file.is_file():
        raise UsageError(f"--model {name!r} is none of {TINY}, {', '.join(known_models())}, and no folder of a model")
    config = json.loads(file.read_text("utf-8"))
    return config


def random_model(config: dict[str, Any], device: str, attention: str) -> Any:
    """transformers' model in bfloat16, as verl trains it: with gradient checkpointing, and gradients that are there.

    Args:
        attention: transformers' `attn_implementation`.
    """
    from transformers import AutoConfig, AutoModelForImageTextToText

    settings = json.loads(json.dumps(config))
    settings.pop("dtype", None)
    built = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(built, dtype=torch.bfloat16, attn_implementation=attention)
    model = model.to(torch.bfloat16).train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model
