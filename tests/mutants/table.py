"""The entries of the table, and what is wrong with them."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPO = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        area: name of its TOML file.
        file: path of the changed file, from the root of the repository.
        old: text that occurs once in the file.
        new: text that replaces it.
        why: what goes wrong for a user.
        tests: paths or node ids of the tests that notice it.
    """

    area: str
    id: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]


def read_table(folder: Path = Path(__file__).parent) -> list[Mutant]:
    """Entries of all TOML files of a folder."""
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            mutants.append(Mutant(path.stem, **{**entry, "tests": tuple(entry["tests"])}))
    return mutants


def table_errors(mutants: Sequence[Mutant], repo: Path = REPO) -> list[str]:
    """One line for each fault of the table itself, such as an entry whose code has moved."""
    errors = [f"{name}: {count} entries have this id" for name, count in count_ids(mutants).items() if count > 1]
    return errors + [f"{mutant.id}: {error}" for mutant in mutants for error in _errors(mutant, repo)]


def count_ids(mutants: Sequence[Mutant]) -> Counter[str]:
    return Counter(mutant.id for mutant in mutants)


def _errors(mutant: Mutant, repo: Path) -> Iterator[str]:
    path = repo / mutant.file
    if not path.is_file():
        yield f"there is no file {mutant.file}"
    elif (count := path.read_text().count(mutant.old)) != 1:
        yield f"{mutant.file} has `old` {count} times instead of once"
    if mutant.new == mutant.old:
        yield "`new` is `old`"
    if not mutant.tests:
        yield "no tests are named"
    for test in mutant.tests:
        file, *names = test.split("::")
        if not (repo / file).is_file():
            yield f"there is no file {file}"
        elif names and (name := names[-1].split("[")[0]) not in _functions(repo / file):
            yield f"{file} has no test {name}"


@cache
def _functions(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
