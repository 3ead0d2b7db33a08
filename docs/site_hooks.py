"""Hooks of mkdocs: addresses from pyproject.toml, and a class for code too long to stay on one line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

LONG = 40
"""Characters of code that fit on one line of a telephone. Shorter code is never broken (stylesheets/tables.css)."""


def on_config(config: Any) -> Any:
    """Sets `site_url` and `repo_url` where `[project.urls]` has Documentation and Repository."""
    project = tomllib.loads((Path(config.config_file_path).parent / "pyproject.toml").read_text(encoding="utf-8"))
    addresses = project["project"].get("urls", {})
    config.site_url = addresses.get("Documentation", config.site_url)
    config.repo_url = addresses.get("Repository", config.repo_url)
    return config


def on_page_content(html: str, **others: Any) -> str:
    """Marks code between words that is too long to stay in one piece."""
    return re.sub(rf"<code>(?=[^<]{{{LONG + 1},}}</code>)", '<code class="long">', html)
