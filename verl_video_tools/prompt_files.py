"""Packaged prompts, and the files that users put in their place."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

from verl_video_tools.errors import UsageError


def read_prompt(package: str, packaged_name: str, prompt_file: str | Path | None) -> str:
    """The text of a prompt that lies in `package`, or of the file that replaces it; white space around it is cut.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    if prompt_file is None:
        return files(package).joinpath(packaged_name).read_text(encoding="utf-8").strip()
    return _read(prompt_file)


def prompt_digest(prompt_file: str | Path | None) -> str | None:
    """16 hexadecimal digits of the text that replaces a packaged prompt; None where the packaged one holds.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    if prompt_file is None:
        return None
    return hashlib.sha256(_read(prompt_file).encode()).hexdigest()[:16]


def _read(prompt_file: str | Path) -> str:
    try:
        return Path(prompt_file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read prompt_file {str(prompt_file)!r}: {error}") from error
