"""The demonstration: a synthetic video world with exact truth, questions about it, and tiny vision-language models."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

__all__ = ["FAMILIES", "Family", "base_model_dir", "clip_dir"]

Family = Literal["qwen2_5_vl", "qwen3_vl"]
"""Architectures of the tiny models, by the name that a configuration has under `model_type`."""

FAMILIES: tuple[Family, ...] = get_args(Family)

_BASES: dict[Family, str] = {"qwen2_5_vl": "base", "qwen3_vl": "base_qwen3"}


def base_model_dir(family: Family = "qwen2_5_vl") -> Path:
    """Folder of a shipped base model (Hugging Face layout): one of about a million parameters that sees.

    Raises:
        FileNotFoundError: the installation lacks the weights.
    """
    folder = Path(str(files(__name__))) / _BASES[family]
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"no base model in {folder}; reinstall the package, or make one with "
            f"`python -m verl_video_tools.synthetic.pretrain --family {family} --out DIR`"
        )
    return folder


def clip_dir() -> Path:
    """Folder of the shipped CLIP of the synthetic world (Hugging Face layout): finds frames by text.

    Raises:
        FileNotFoundError: the installation lacks the weights.
    """
    folder = Path(str(files(__name__))) / "clip"
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"no CLIP in {folder}; reinstall the package, or make one with "
            "`python -m verl_video_tools.synthetic.clip_pretrain --out DIR`"
        )
    return folder
