"""The model that is evaluated: a digest of its files, as a folder may move or change, and the sizes of its images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.machine import locate_model
from verl_video_tools.core.types import PixelEnvelope

_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".safetensors", ".bin", ".pt", ".gguf")
"""Of the files that decide what a model says: config, tokenizer, processor, chat template, weights."""
_DIGITS = 16
_THREADS = 8


def model_digest(model: str) -> str | None:
    """Of the names and contents of a model's files, 16 hexadecimal digits; None for a name of a hub.

    Every byte is read, as serving does too: weights before and after training differ in nothing else. Files in folders
    below, which may be other models, do not count.

    Args:
        model: folder, file (GGUF) or name.

    Raises:
        UsageError: a file cannot be read.
    """
    path = Path(model)
    if path.is_dir():
        files: Iterable[Path] = (file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    elif path.is_file():
        files = (path,)
    else:
        return None
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        lines = sorted(threads.map(_line, files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:_DIGITS]


def _line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n"
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


def envelope_of_model(model: str | None, min_pixels: int | None = None, max_pixels: int | None = None) -> PixelEnvelope:
    """The envelope of a model's image processor; any size where no model is named.

    Args:
        model: folder or name on Hugging Face.
        min_pixels, max_pixels: as `data.mm_processor_kwargs` in training; both or neither.

    Raises:
        UsageError: it cannot be loaded, is of another kind, or only one bound is given, or bounds without a model.
    """
    if model is None:
        if min_pixels is not None or max_pixels is not None:
            raise UsageError("min_pixels and max_pixels are bounds of a processor; name the model as well")
        return PixelEnvelope()
    model = locate_model(model)
    from transformers import AutoImageProcessor

    from verl_video_tools.video import envelope_of

    try:
        processor = AutoImageProcessor.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load a processor from {model!r}: {error}") from error
    return envelope_of(processor, {"min_pixels": min_pixels, "max_pixels": max_pixels})
