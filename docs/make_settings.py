"""Write the tables of settings in docs/judge.md, tools.md and retrieval.md: python docs/make_settings.py.

Fields, defaults and meanings come from the classes that hold the settings, in the order of their definition.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from verl_video_tools.services.judge import JudgeConfig
from verl_video_tools.services.retrieval import RetrievalConfig
from verl_video_tools.services.tool_model import ToolModelConfig

DOCS = Path(__file__).parent
PAGES: dict[str, type] = {
    "judge.md": JudgeConfig,
    "tools.md": ToolModelConfig,
    "retrieval.md": RetrievalConfig,
}
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"


def with_table(page: str, settings: type) -> str:
    """The page with the table of these settings between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return "\n".join([f"{before}{BEGIN}", *_table(settings), f"{END}{after}"])


def _table(settings: type) -> Iterator[str]:
    meanings = _meanings(settings)
    yield "| field | default | meaning |"
    yield "|---|---|---|"
    for field in fields(settings):
        yield f"| `{field.name}` | {_shown(field.default)} | {meanings[field.name]} |"


def _meanings(settings: type) -> dict[str, str]:
    """What stands below each field of a class and of its bases, in one line."""
    found: dict[str, str] = {}
    for owner in reversed(settings.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                assert isinstance(field.target, ast.Name) and isinstance(below.value, ast.Constant)
                found[field.target.id] = " ".join(str(below.value.value).split()).replace("|", "\\|")
    return found


def _shown(default: Any) -> str:
    if isinstance(default, str):
        return f"`{default}`"
    if default is None:
        return "none"
    return f"{default:,}" if isinstance(default, int) else f"{default:g}"


if __name__ == "__main__":
    for name, settings in PAGES.items():
        path = DOCS / name
        path.write_text(with_table(path.read_text(encoding="utf-8"), settings), encoding="utf-8")
