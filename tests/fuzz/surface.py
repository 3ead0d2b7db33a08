"""A surface: where inputs of others come in. It makes inputs from random numbers, and says how each must be taken."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

Result = TypeVar("Result")

CORPUS = Path(__file__).with_name("corpus")

SURFACES = {
    "turns": "tests.fuzz.turns:Turns",
    "rollouts": "tests.fuzz.rollouts:Rollouts",
    "videos": "tests.fuzz.videos:Videos",
    "judge": "tests.fuzz.judge:JudgeReplies",
    "rows": "tests.fuzz.rows:Rows",
    "caches": "tests.fuzz.caches:Caches",
    "bodies": "tests.fuzz.bodies:Bodies",
}
"""Python path of each surface by its name."""


class Surface(ABC):
    """One surface, and what it needs to be asked: an event loop, and files below a folder of its own."""

    name: ClassVar[str]
    unit: ClassVar[str]
    """What is counted, in the plural."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loop = asyncio.new_event_loop()
        self._logger = logging.getLogger("verl_video_tools")
        self._level = self._logger.level
        self._logger.setLevel(logging.CRITICAL)  # a line for each input

    @abstractmethod
    def make(self, random: Random) -> Any:
        """An input, of values that JSON can carry."""

    @abstractmethod
    def check(self, case: Any) -> int:
        """Hand an input over, and compare what comes of it with what must.

        Returns:
            How many inputs it counts for.

        Raises:
            Exception: whatever escapes, or an AssertionError where the input was not handled rightly.
        """

    def close(self) -> None:
        """Give back what the surface holds."""
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._logger.setLevel(self._level)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(coroutine)

    def input(self, seed: int, number: int) -> Any:
        """The input of this number: the same one in every process."""
        return self.make(Random(f"{self.name} {seed} {number}"))

    def corpus(self) -> dict[str, Any]:
        """Past finds by name."""
        files = sorted((CORPUS / self.name).glob("*.json"))
        return {file.stem: json.loads(file.read_text(encoding="utf-8"))["case"] for file in files}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load_surface(name: str, folder: Path) -> Surface:
    """The surface `name`, with its files below `folder`."""
    module, _, attribute = SURFACES[name].partition(":")
    made: Surface = getattr(importlib.import_module(module), attribute)(folder)
    return made
