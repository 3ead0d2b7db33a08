"""The demonstration: a synthetic video world with exact truth, questions about it, and a tiny vision-language model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["base_model_dir", "clip_dir", "prompts_dir"]


def base_model_dir() -> Path:
    """Folder of the shipped base model (Hugging Face layout): a Qwen2.5-VL of about a million parameters that sees.

    Raises:
        FileNotFoundError: the installation lacks the weights.
    """
    folder = Path(str(files(__name__))) / "base"
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"no base model in {folder}; reinstall the package, or make one with "
            "`python -m verl_video_tools.demo.pretrain --out DIR`"
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
            "`python -m verl_video_tools.demo.clip_pretrain --out DIR`"
        )
    return folder


def prompts_dir() -> Path:
    """Folder of short system prompts for the tiny model, one text file per method (for the field `prompt_file`)."""
    return Path(str(files(__name__))) / "prompts"
