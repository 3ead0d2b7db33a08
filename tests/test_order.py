"""The order in which files go out to workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.order import pytest_collection_modifyitems as order


@dataclass(frozen=True)
class Item:
    name: str
    path: Path
    mark: str = ""

    def get_closest_marker(self, name: str) -> Any:
        return self.mark == name or None


@dataclass(frozen=True)
class Config:
    is_reordered: bool

    def getoption(self, name: str, default: object) -> object:
        return {"loadscopereorder": self.is_reordered}.get(name, default)


def items_marked(mark: str) -> list[Any]:
    return [
        *(Item(name, Path("few.py")) for name in "ab"),
        Item("c", Path("many.py")),
        Item("d", Path("long.py")),
        *(Item(name, Path("many.py")) for name in "ef"),
        Item("g", Path("long.py"), mark),
    ]


@pytest.mark.parametrize("mark", ["slow", "long"])
@pytest.mark.parametrize(("is_reordered", "expected"), [(False, "dgcefab"), (True, "abcdefg")])
def test_slow_files_go_first_and_then_those_with_many_tests(mark: str, is_reordered: bool, expected: str) -> None:
    items = items_marked(mark)
    order(Config(is_reordered), items)  # type: ignore[arg-type]
    assert "".join(item.name for item in items) == expected
