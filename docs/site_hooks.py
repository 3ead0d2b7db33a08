"""Hooks of mkdocs: addresses of the project, and a class for code too long to stay on one line."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LONG = 40
"""Characters of code that fit on one line of a telephone. Shorter code is never broken (stylesheets/tables.css)."""


def on_config(config: Any) -> Any:
    """Sets `site_url` and `repo_url`: Documentation and Repository of `[project.urls]`; without the second, the place
    that the checkout was cloned from."""
    root = Path(config.config_file_path).parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    addresses = project.get("urls", {})
    config.site_url = addresses.get("Documentation", config.site_url)
    config.repo_url = addresses.get("Repository") or _web_address(_origin(root)) or config.repo_url
    if config.repo_url:
        config.repo_name = config.repo_name or urlsplit(config.repo_url).path.strip("/")
    return config


def on_page_content(html: str, **others: Any) -> str:
    """Marks code between words that is too long to stay in one piece."""
    return re.sub(rf"<code>(?=[^<]{{{LONG + 1},}}</code>)", '<code class="long">', html)


def _origin(root: Path) -> str:
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):  # no git: an unpacked archive
        return ""


def _web_address(remote: str) -> str | None:
    """A remote of git as a page, without user or password; None for a path or another protocol."""
    if match := re.fullmatch(r"(?:ssh://)?git@([\w.-]+)[:/](.+?)(?:\.git)?/?", remote):
        return f"https://{match[1]}/{match[2]}"
    parts = urlsplit(remote)
    if parts.scheme == "https" and parts.hostname:
        return f"https://{parts.hostname}{parts.path.rstrip('/').removesuffix('.git')}"
    return None
