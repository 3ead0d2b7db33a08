"""The site: its addresses, its switch of colours, its roads, and code that stays in one piece."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

REPO = Path(__file__).parents[1]
HOOKS = runpy.run_path(str(REPO / "docs" / "site_hooks.py"))
SITE = yaml.safe_load((REPO / "mkdocs.yml").read_text(encoding="utf-8"))


def configured(folder: Path, urls: str) -> Any:
    (folder / "pyproject.toml").write_text(f"[project]\nname = 'x'\n{urls}")
    config = SimpleNamespace(config_file_path=str(folder / "mkdocs.yml"), site_url=None, repo_url=None, repo_name=None)
    return HOOKS["on_config"](config)


def test_addresses_are_those_of_the_project(tmp_path: Path) -> None:
    urls = "[project.urls]\nDocumentation = 'https://docs.example.org/'\nRepository = 'https://example.org/r'\n"
    config = configured(tmp_path, urls)
    assert (config.site_url, config.repo_url) == ("https://docs.example.org/", "https://example.org/r")
    assert config.repo_name == "r"
    config = configured(tmp_path, "")
    assert (config.site_url, config.repo_url) == (None, None)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@example.org:owner/name.git", "https://example.org/owner/name"),
        ("ssh://git@example.org/owner/name.git", "https://example.org/owner/name"),
        ("https://user:secret@example.org/owner/name.git", "https://example.org/owner/name"),
        ("https://example.org/owner/name/", "https://example.org/owner/name"),
        ("/srv/git/name", None),
        ("file:///srv/git/name", None),
        ("", None),
    ],
)
def test_a_clone_tells_its_repository(remote: str, address: str | None) -> None:
    assert HOOKS["_web_address"](remote) == address


def test_long_code_may_be_broken_and_other_code_not() -> None:
    long = "tests/" + "x" * 40
    html = f"<p><code>--short-name</code> <code>{long}</code></p><pre><code>{'y' * 80}\nz</code></pre>"
    made = HOOKS["on_page_content"](html)
    assert made == html.replace(f"<code>{long}", f'<code class="long">{long}').replace(
        "<code>yy", '<code class="long">yy'
    )
    css = (REPO / "docs" / "stylesheets" / "tables.css").read_text(encoding="utf-8")
    assert ":not(pre) > code {\n  white-space: nowrap;" in css and ":not(pre) > code.long {" in css


def test_colours_can_be_switched() -> None:
    palette = SITE["theme"]["palette"]
    assert [colours.get("scheme") for colours in palette] == [None, "default", "slate"]
    assert all(colours["toggle"]["name"] and colours["toggle"]["icon"] for colours in palette)


def test_the_roads_are_tabs() -> None:
    assert "navigation.tabs" in SITE["theme"]["features"]
    tabs = [name for entry in SITE["nav"] for name in entry]
    assert tabs == ["Get started", "Train", "Evaluate", "Extend", "Reference"]
