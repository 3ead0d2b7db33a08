"""What the pages of this package share: templates, styles, and how they are written."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import whole_file


def render(template: str, styles: Sequence[str], **values: Any) -> bytes:
    """A page that loads nothing.

    Args:
        template: name of a file in `viewer/`; its values are escaped unless it says otherwise.
        styles: names of the style sheets; the template takes them as `style`, with their `style_hash`.
    """
    from jinja2 import Environment, StrictUndefined  # here: `vvt replay` seldom draws a page

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    style = "".join(map(resource, styles))
    page = environment.from_string(resource(template)).render(style=style, style_hash=source_hash(style), **values)
    return page.encode("utf-8", errors="replace")


def resource(name: str) -> str:
    """Text of a file in `viewer/`."""
    return (files("verl_video_tools.records") / "viewer" / name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """A style or script as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_whole(out: Path, content: bytes) -> None:
    """Write a file that appears only when it is complete.

    Raises:
        UsageError: it cannot be written.
    """
    if out.is_dir():  # "." has no name to write beside
        raise UsageError(f"{out}: cannot be written, it is a folder; name a file")
    try:
        with whole_file(out) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
