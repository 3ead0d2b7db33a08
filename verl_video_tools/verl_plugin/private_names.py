"""What we use of verl, vLLM, TransferQueue and transformers' internals, and whether the installed versions define it.

The names are in `private_names.toml`, the one place to look at before a version is raised. To check them, the packages'
files are read, and nothing is imported: importing all of it takes half a minute.
"""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).with_suffix(".toml")
NEEDED = ("objects", "found")


@dataclass(frozen=True, slots=True)
class PrivateName:
    """One name of another package."""

    module: str
    attribute: str
    """`name`, `Class.name`, or a text in quotes that the module's source holds, such as the name of a Ray actor."""
    used_by: tuple[str, ...]
    """Our modules, below `verl_video_tools`."""

    @property
    def package(self) -> str:
        """The top-level module."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.module}: {self.attribute} (used by {', '.join(self.used_by)})"


def private_names(kind: str | None = None) -> list[PrivateName]:
    """All that an installed version has to define.

    Args:
        kind: only those that are `found` in our code by a program, or that are named by hand because they are read
            from `objects`; or instead those that `newer` versions define, and without which our code does, too.
    """
    tables = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return [
        PrivateName(module, attribute, tuple(users.split()))
        for chosen in ([kind] if kind else NEEDED)
        for module, names in tables[chosen].items()
        for attribute, users in names.items()
    ]


def missing_names(names: Iterable[PrivateName]) -> list[PrivateName]:
    """Those that the installed versions do not define where we look for them."""
    return [name for name in names if not _is_defined(name)]


def _is_defined(name: PrivateName) -> bool:
    path = module_file(name.module)
    if path is None:
        return False
    if name.attribute.startswith("'"):
        return name.attribute.strip("'") in path.read_text(encoding="utf-8")
    return defines(path, name.attribute)


def module_file(module: str) -> Path | None:
    """The source of a module, without importing it or a package above it; None where there is none."""
    top, *parts = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        return None
    return _source(Path(next(iter(spec.submodule_search_locations))).joinpath(*parts))


def defines(path: Path, name: str) -> bool:
    """Whether a module defines or imports a `name`, or has a class with this method or attribute as `Class.name`.

    What it imports with a star is read only where it has no such name itself: behind it may stand a thousand files.
    """
    read, unread = set(), [path]
    while unread:
        found = _read(source := unread.pop())
        if name in found.names:
            return True
        read.add(source)
        unread += [star for star in found.star_sources if star not in read]
    return False


@dataclass(frozen=True, slots=True)
class _Definitions:
    """Of a module itself: `name`, and `Class.name` for methods and attributes of its classes."""

    names: frozenset[str]
    star_sources: tuple[Path, ...]


@cache
def _read(path: Path) -> _Definitions:
    names: set[str] = set()
    star_sources = []
    for statement in _flat(ast.parse(path.read_text(encoding="utf-8")).body):
        names |= _names(statement)
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            star_sources += [source] if (source := _imported_file(path, statement)) else []
        if isinstance(statement, ast.ClassDef):
            members = {name for member in _flat(statement.body) for name in _names(member)}
            names |= {f"{statement.name}.{name}" for name in members | _instance_attributes(statement)}
    # A package's submodules are attributes of it.
    if path.name == "__init__.py":
        names |= {entry.stem for entry in path.parent.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    return _Definitions(frozenset(names), tuple(star_sources))


def _imported_file(path: Path, statement: ast.ImportFrom) -> Path | None:
    """The source of the module that a statement in `path` imports from."""
    if not statement.level:
        return module_file(statement.module or "")
    folder = path.parents[statement.level - 1]
    return _source(folder.joinpath(*(statement.module or "").split(".")))


def _source(path: Path) -> Path | None:
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, and those of its conditions and `try`s."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _flat(handler.body)


def _names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return set()


def _instance_attributes(statement: ast.ClassDef) -> set[str]:
    """What its methods assign to `self`."""
    return {
        node.attr
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
