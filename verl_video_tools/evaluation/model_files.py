"""Which model a server of our own serves: identified by its files' content, as a folder may move or change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verl_video_tools.core.errors import UsageError

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
