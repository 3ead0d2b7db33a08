"""The folder of one evaluation: which one it holds, and how its files are written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import whole_file
from verl_video_tools.data.append import appended

PROTOCOL, ROLLOUTS = "protocol.json", "rollouts.jsonl"

_PLACES = {
    "served.model": "served.digest",
    "config.prompt_file": "prompt_digest",
    "config.templates_file": "templates_digest",
    "config.file": "made_of.digest",
    "made_of.file": "made_of.digest",
    "judge.prompt_file": "judge.prompt_digest",
}
"""Leaves of the protocol that name a file or folder, and those that hold a digest of its content."""


def entered(folder: Path, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Take a folder for an evaluation, or continue the same one.

    A protocol without rollouts claims nothing: it is what a start leaves behind that failed for want of a judge, a
    retriever or a server.

    Returns:
        The protocol as it stands there; of a model or a prompt that has been moved since, it names the first place.

    Raises:
        UsageError: the folder holds another evaluation, is in use by one, or cannot be written.
    """
    path = folder / PROTOCOL
    plain: dict[str, Any] = json.loads(json.dumps(protocol))
    with appended(folder / ROLLOUTS, "step") as rollouts:  # locked: nobody else is about to write its first line
        has_rollouts = rollouts.seek(0, os.SEEK_END) > 0
        try:
            if not has_rollouts or not path.exists():
                write_json(path, plain)
                return plain
            earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise UsageError(f"{path} is no protocol of an evaluation: {error}") from error
    changes = [
        f"{name} was {_short(old)} and is now {_short(new)}"
        for name, (old, new) in _differences(earlier, plain).items()
        if not _is_moved(name, earlier, plain)
    ]
    if changes:
        raise UsageError(f"{folder} holds another evaluation: {'; '.join(changes)}. Give another --out")
    return earlier


def write_text(path: Path, text: str) -> None:
    """Whole or not at all; what UTF-8 cannot hold is written with backslashes."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _is_moved(name: str, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether only the place of something differs, whose content is the same."""
    content = _PLACES.get(name)
    return content is not None and (digest := _at(earlier, content)) is not None and digest == _at(now, content)


def _at(protocol: Any, name: str) -> Any:
    """The leaf of a dotted name; None where there is none."""
    for key in name.split("."):
        protocol = protocol.get(key) if isinstance(protocol, dict) else None
    return protocol


def _differences(old: Any, new: Any, name: str = "") -> dict[str, tuple[Any, Any]]:
    """Leaves that differ, by dotted name."""
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in sorted(old.keys() | new.keys()):
            found |= _differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        return found
    return {} if old == new else {name: (old, new)}


def _short(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False):.100}"
