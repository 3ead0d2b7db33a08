"""A surface with planted faults, for the tests of the rounds themselves."""

from __future__ import annotations

import ctypes
from random import Random
from typing import Any, ClassVar

from tests.fuzz.surface import Surface

PATH = "tests.fuzz.planted:Planted"
WRONG, HANGS, CRASHES = 3, 6, 9
"""Numbers of the inputs."""


class Planted(Surface):
    """Every input is its number; some are not handled rightly."""

    name: ClassVar[str] = "planted"
    unit: ClassVar[str] = "numbers"

    def make(self, random: Random) -> Any:
        return random.randrange(1 << 30)

    def input(self, seed: int, number: int) -> Any:
        return number

    def check(self, case: Any) -> int:
        assert case != WRONG, "the planted fault"
        if case == HANGS:
            while True:
                pass
        if case == CRASHES:
            ctypes.string_at(0)
        return 1
