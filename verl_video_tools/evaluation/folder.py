"""The folder of one evaluation: which one it holds, and how its files are written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.files import whole_file
from verl_video_tools.data.append import appended
from verl_video_tools.data.generation.protocol import settled

PROTOCOL, ROLLOUTS = "protocol.json", "rollouts.jsonl"


def entered(folder: Path, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Take a folder for an evaluation, or continue the same one.

    Returns:
        The protocol as it stands there; of a model or a prompt that has been moved since, it names the first place.

    Raises:
        UsageError: the folder holds another evaluation, is in use by one, or cannot be written.
    """
    with appended(folder / ROLLOUTS, "step") as rollouts:  # locked: nobody else is about to write its first line
        return settled(
            folder / PROTOCOL,
            protocol,
            has_rollouts=rollouts.seek(0, os.SEEK_END) > 0,
            otherwise=f"{folder} holds another evaluation",
            advice="Give another --out",
        )


def write_text(path: Path, text: str) -> None:
    """Whole or not at all; what UTF-8 cannot hold is written with backslashes."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
