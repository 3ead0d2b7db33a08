"""A synthetic video world with exact truth and questions about it, and where the tiny models that see it lie.

The models, and the programs that make them, are in examples/tiny_models of the repository, not in the package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

__all__ = ["FAMILIES", "Family", "base_model_dir", "clip_dir"]

Family = Literal["qwen2_5_vl", "qwen3_vl"]
"""Architectures of the tiny models, by the name that a configuration has under `model_type`."""

FAMILIES: tuple[Family, ...] = get_args(Family)

_BASES: dict[Family, str] = {"qwen2_5_vl": "base", "qwen3_vl": "base_qwen3"}


def base_model_dir(family: Family = "qwen2_5_vl") -> Path:
    """Folder of a base model (Hugging Face layout): one of about a million parameters that sees.

    Raises:
        FileNotFoundError: it is not there.
    """
    return _model_dir(_BASES[family])


def clip_dir() -> Path:
    """Folder of the CLIP of the synthetic world (Hugging Face layout): finds frames by text.

    Raises:
        FileNotFoundError: it is not there.
    """
    return _model_dir("clip")


def _model_dir(name: str) -> Path:
    checkout = Path(__file__).parents[2] / "examples" / "tiny_models"
    folder = Path(os.environ.get("VVT_TINY_MODELS") or checkout) / name
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"no model in {folder}: the tiny models are in the repository, not in the installed package; set "
            "VVT_TINY_MODELS to the folder examples/tiny_models of a checkout, whose README says how to make them"
        )
    return folder
