"""The package that docs/write-a-method.md builds, taken from the page: its files, and its commands in their order."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[1]
PAGE = REPO / "docs" / "write-a-method.md"
CHECKOUT = "/path/to/verl_video_tools"
"""Where the page's reader has the repository."""


@dataclass(frozen=True)
class Block:
    """A code block of the page.

    Attributes:
        file: path of the file whose content it is; None: it is no file.
    """

    language: str
    file: str | None
    text: str


def blocks() -> list[Block]:
    """All code blocks of the page, in order."""
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return [Block(language, file or None, text) for language, file, text in found]


def commands() -> list[str]:
    """The blocks of commands, in order."""
    return [block.text for block in blocks() if block.language == "bash" and block.file is None]


def write_package(folder: Path) -> None:
    """Write every file that the page shows into a folder."""
    for block in blocks():
        if block.file is not None:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


def as_script(checkout: Path, outputs: Path) -> str:
    """What the page's reader does, from top to bottom, as one program of bash.

    Args:
        checkout: takes the place of `CHECKOUT`.
        outputs: folder that gets what the commands of each block print: `0.txt`, `1.txt`, ...
    """
    lines = ["set -euo pipefail"]
    number = 0
    for block in blocks():
        if block.file is not None:
            path = shlex.quote(block.file)
            lines.append(f"mkdir -p $(dirname {path}) && printf %s {shlex.quote(block.text)} > {path}")
        elif block.language == "bash":
            text = block.text.replace(CHECKOUT, str(checkout))
            lines.append(f"{{\n{text}}} > {shlex.quote(str(outputs / f'{number}.txt'))}")
            number += 1
    return "\n".join(lines)
