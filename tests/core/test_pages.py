"""Pages that messages cite: a user can open them, they exist, and no message names a path of the repository instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from verl_video_tools.cli.names import Kind, texts_of
from verl_video_tools.core import machine as pages

PACKAGE = Path(pages.__file__).parents[1]
DOCS = PACKAGE.parent / "docs"
PATH = re.compile(r"\bdocs/[a-z]")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    pages._site.cache_clear()
    yield
    pages._site.cache_clear()


def published(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """The package's metadata names these addresses."""
    told = Message()
    for address in addresses:
        told["Project-URL"] = address
    monkeypatch.setattr(pages, "metadata", lambda name: told)


def test_without_a_site_it_is_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch, "verl, https://github.com/verl-project/verl")
    address = urlsplit(pages.page("methods/longvt"))
    assert (address.scheme, unquote(address.path)) == ("file", str(DOCS / "methods" / "longvt.md"))


def test_a_wheel_s_own_pages_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch)
    (tmp_path / "judge.md").write_text("# Judge")
    monkeypatch.setattr(pages, "_FOLDERS", (tmp_path, DOCS))
    assert pages.page("judge") == (tmp_path / "judge.md").as_uri()
    monkeypatch.setattr(pages, "_FOLDERS", ())
    assert pages.page("judge") == "docs/judge.md of the source distribution"


@pytest.mark.parametrize("base", ["https://docs.example.org/tools", "https://docs.example.org/tools/"])
def test_the_site_where_there_is_one(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch, "Repository, https://example.org/r", f"Documentation, {base}")
    assert pages.page("judge") == "https://docs.example.org/tools/judge/"


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts of a module that are no docstrings, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for child in node.body:
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    child.value.value = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def modules(word: str) -> Iterator[tuple[Path, ast.Module]]:
    """Those of the package that hold a word: to parse all takes seconds."""
    for path in PACKAGE.rglob("*.py"):
        if word in (text := path.read_text(encoding="utf-8")):
            yield path, ast.parse(text)


def test_no_message_names_a_path_of_the_repository() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path, tree in modules("docs/")
        if path.name != "machine.py"
        for line, text in strings(tree)
        if PATH.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("kind", Kind)
def test_what_vvt_list_prints_names_none(kind: Kind) -> None:
    assert [name for name, texts in texts_of(kind).items() if any(map(PATH.search, texts))] == []


def test_cited_pages_exist() -> None:
    cited = []
    for _, tree in modules("page("):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "page":
                cited += [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    assert len(cited) > 10
    assert [name for name in cited if not (DOCS / f"{name}.md").is_file()] == []
