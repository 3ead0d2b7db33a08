"""Packaged system prompts, and how their placeholders are filled."""

from __future__ import annotations

from verl_video_tools.prompt_files import read_prompt


def load_prompt(packaged_name: str, prompt_file: str | None, **values: object) -> str:
    """The packaged prompt, or the file that replaces it, with every ``{name}`` of `values` filled in.

    Other braces are left as they are, so a prompt may contain JSON.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    text = read_prompt(__name__, packaged_name, prompt_file)
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text.strip()
