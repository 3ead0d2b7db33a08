"""Packaged system prompts, and how their placeholders are filled."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from verl_video_tools.errors import UsageError


def load_prompt(packaged_name: str, prompt_file: str | None, **values: object) -> str:
    """The packaged prompt, or the file that replaces it, with every ``{name}`` of `values` filled in.

    Other braces are left as they are, so a prompt may contain JSON.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    if prompt_file is None:
        text = files(__name__).joinpath(packaged_name).read_text(encoding="utf-8")
    else:
        try:
            text = Path(prompt_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read prompt_file {prompt_file!r}: {error}") from error
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text.strip()
