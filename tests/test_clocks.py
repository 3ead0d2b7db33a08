"""A clock that jumps ends no run and keeps none waiting: limits are taken from the monotonic clock."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "verl_video_tools"
WALL_CLOCK = {"time", "time_ns", "localtime", "gmtime", "now", "today", "utcnow"}
"""Functions of `time` and `datetime` that answer otherwise after a jump."""
MAY = {
    "launch/environment.py": "the time in the name of a log",
    "launch/train.py": "the time in the name of a smoke test's folder",
}


def readers_of_the_wall_clock() -> set[str]:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in WALL_CLOCK
                and isinstance(node.value, ast.Name)
                and node.value.id in ("time", "datetime", "date")
            ):
                found.add(path.relative_to(PACKAGE).as_posix())
    return found


def test_no_limit_reads_the_wall_clock() -> None:
    assert readers_of_the_wall_clock() == set(MAY)
