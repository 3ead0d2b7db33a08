"""Write the tables of docs/compose.md from the code: python docs/make_compose.py.

What stands between ``<!-- NAME -->`` and ``<!-- end -->`` is replaced; the rest of the page is written by hand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from verl_video_tools.core.resolve import resolve
from verl_video_tools.methods.compose.composition import Limits, Turns
from verl_video_tools.methods.compose.frames import PLANS
from verl_video_tools.methods.compose.grammar import GRAMMARS
from verl_video_tools.methods.compose.messages import DEFAULTS
from verl_video_tools.methods.compose.terms import TERMS
from verl_video_tools.methods.compose.tools import TOOLS

PAGE = Path(__file__).parent / "compose.md"
_ATTRIBUTE = re.compile(r"^    ([a-z_][\w, ]*): (.*)$")


def page(text: str) -> str:
    """The page with its tables as the code has them now."""
    for name, lines in _tables().items():
        made = "\n".join(lines)
        text, count = re.subn(
            rf"<!-- {name} -->.*?<!-- end -->",
            lambda _, made=made, name=name: f"<!-- {name} -->\n\n{made}\n\n<!-- end -->",
            text,
            flags=re.DOTALL,
        )
        assert count == 1, f"docs/compose.md has {count} places for {name}"
    return text


def _tables() -> dict[str, Iterator[str]]:
    return {
        "tools": _parts({name: (resolve(name, {name: t.path}, "tool"), t.defaults) for name, t in TOOLS.items()}),
        "grammars": _parts({name: (resolve(name, GRAMMARS, "grammar"), {}) for name in GRAMMARS}),
        "plans": _parts({name: (resolve(name, PLANS, "plan"), {}) for name in PLANS}),
        "terms": _parts({name: (resolve(name, TERMS, "term"), {}) for name in TERMS}),
        "turns": _keys(Turns, {}),
        "limits": _keys(Limits, {}),
        "messages": _messages(),
    }


def _parts(parts: Mapping[str, tuple[Any, Mapping[str, Any]]]) -> Iterator[str]:
    yield "| name | key | default | meaning |"
    yield "|---|---|---|---|"
    for name, (part, defaults) in parts.items():
        about = (inspect.getdoc(part) or "").partition("\n\n")[0]
        yield f"| `{name}` | | | {_cell(about)} |"
        yield from (f"| {row}" for row in _rows(part, defaults))


def _keys(part: Any, defaults: Mapping[str, Any]) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    yield from (row for row in _rows(part, defaults))


def _rows(part: Any, defaults: Mapping[str, Any]) -> Iterator[str]:
    told = _attributes(part)
    for own in fields(part):
        if own.name == "compat":  # no composition may set it
            continue
        assert own.name in told, f"{part.__name__} does not say what {own.name} is"
        yield f"| `{own.name}` | {_default(own, defaults)} | {_cell(told[own.name])} |"


def _attributes(part: Any) -> dict[str, str]:
    """What the docstrings of a class and its bases say of its fields."""
    told: dict[str, str] = {}
    for owner in reversed(part.__mro__):
        names: list[str] = []
        for line in (inspect.cleandoc(owner.__doc__ or "")).splitlines():
            if found := _ATTRIBUTE.match(line):
                names = [name.strip() for name in found[1].split(",")]
                told |= dict.fromkeys(names, found[2])
            elif names and line.startswith("        "):
                told |= {name: f"{told[name]} {line.strip()}" for name in names}
            else:
                names = []
    return told


def _default(own: Field[Any], defaults: Mapping[str, Any]) -> str:
    value = defaults.get(own.name, own.default)
    if value is MISSING:
        return "must be given"
    if value is None or isinstance(value, bool):
        return f"`{ {None: 'null', True: 'true', False: 'false'}[value] }`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _messages() -> Iterator[str]:
    yield "| key | default | must hold | may hold |"
    yield "|---|---|---|---|"
    for name, template in DEFAULTS.items():
        text = template.text.replace("\n", "\\n")
        listed = (", ".join(f"`{{{one}}}`" for one in names) for names in (template.once, template.optional))
        yield f"| `{name}` | {f'`{text}`' if text else ''} | {' | '.join(listed)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
