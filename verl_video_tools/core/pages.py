"""Where a user reads a page of the documentation that a message cites."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
"""Pages that came with a wheel, and those of a checkout."""


def page(name: str) -> str:
    """The URL of a page, which can be opened wherever the package is installed.

    On the site that the package's metadata names as Documentation (`[project.urls]`); where it names none, the file
    that comes with the package.

    Args:
        name: its path in docs, without suffix, such as "judge".
    """
    if site := _site():
        return f"{site}/{name}/"
    for folder in _FOLDERS:
        if (path := folder / f"{name}.md").is_file():
            return path.as_uri()
    return f"docs/{name}.md of the source distribution"


@cache
def _site() -> str | None:
    try:
        addresses = metadata("verl_video_tools").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        return None
    by_label = dict(address.split(", ", 1) for address in addresses)
    return by_label.get("Documentation", "").rstrip("/") or None
