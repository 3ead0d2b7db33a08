"""Packaged prompts, and the files that users put in their place."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from verl_video_tools.core.errors import UsageError


def read_prompt(package: str, packaged_name: str, prompt_file: str | Path | None) -> str:
    """The text of a prompt that lies in `package`, or of the file that replaces it; white space around it is cut.

    Either is read once per process: an edit of the file changes no run that is under way.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    return _packaged(package, packaged_name) if prompt_file is None else _text(str(prompt_file))


def file_beside(owner: type, name: str) -> Traversable:
    """A file in the folder of the module that defines a class, such as a method's. The module may lie in no package."""
    package = owner.__module__.rpartition(".")[0]
    folder = files(package) if package else Path(inspect.getfile(owner)).parent
    return folder.joinpath(name)


def prompt_digest(prompt_file: str | Path | None) -> str | None:
    """16 hexadecimal digits of the text that replaces a packaged prompt; None where the packaged one holds.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    if prompt_file is None:
        return None
    return hashlib.sha256(_text(str(prompt_file)).encode()).hexdigest()[:16]


UNKNOWN_PROMPT = ""
"""In place of a digest where nobody has recorded under which prompt turns were written."""


def other_prompt(recorded: str | None, current: str | None) -> str | None:
    """How the system prompt of a replay differs from the recorded rollout's; None where it does not, or is unknown.

    Args:
        recorded: digest of the prompt (`prompt_digest`) in the record.
        current: the same of the method that replays it.
    """
    if recorded in (current, UNKNOWN_PROMPT):
        return None
    return f"recorded with {_in_words(recorded)}, replayed with {_in_words(current)}"


def _in_words(digest: str | None) -> str:
    return "the packaged system prompt" if digest is None else f"a prompt_file of digest {digest}"


def load_prompt(package: str, packaged_name: str, prompt_file: str | None, **values: object) -> str:
    """The packaged prompt, or the file that replaces it, with every ``{name}`` of `values` filled in.

    Other braces are left as they are, so a prompt may contain JSON.

    Raises:
        UsageError: `prompt_file` cannot be read.
    """
    text = read_prompt(package, packaged_name, prompt_file)
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text.strip()


@cache
def _packaged(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8").strip()


@cache
def _text(prompt_file: str) -> str:
    try:
        return Path(prompt_file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read prompt_file {prompt_file!r}: {error}") from error
