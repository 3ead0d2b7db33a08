"""Surface `caches`: files of caches that were damaged, exchanged or written by others. Each is a miss, and heals."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz import texts
from tests.fuzz.damage import damaged, damages
from tests.fuzz.surface import Surface
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.judge import CacheKey, VerdictCache

ENTRY = CacheKey("Which animal?", "a dog", "a cat", "Judge.", "model")
CHANGED = ("question", "truth", "answer", "prompt", "model")


class Caches(Surface):
    """Verdicts of judges."""

    name: ClassVar[str] = "caches"
    unit: ClassVar[str] = "files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.verdicts = VerdictCache(folder / "verdicts")

    def make(self, random: Random) -> Any:
        case: dict[str, Any] = {"damages": damages(random), "as": None}
        roll = random.random()
        if roll < 0.4:
            case["as"] = random.choice((*CHANGED, "label")) if roll < 0.2 else texts.value(random)
        return case

    def check(self, case: Any) -> int:
        self._verdict(case["damages"], case["as"])
        return 1

    def _verdict(self, kinds: list[Any], written: Any) -> None:
        self.verdicts.put(ENTRY, AnswerLabel.INCORRECT)
        path = _file_of(self.verdicts, ENTRY)
        if written == "label":
            path.write_text(path.read_text().replace('"incorrect"', '"correct"'))
        elif written in CHANGED:
            other = CacheKey(**{**{name: getattr(ENTRY, name) for name in CHANGED}, written: "another"})
            self.verdicts.put(other, AnswerLabel.CORRECT)
            _file_of(self.verdicts, other).replace(path)
        elif written is not None:
            path.write_text(json.dumps({"label": "correct", "question": written}))
        else:
            path.write_bytes(damaged(path.read_bytes(), kinds))
        assert self.verdicts.get(ENTRY) in (None, AnswerLabel.INCORRECT), "another verdict is believed"
        self.verdicts.put(ENTRY, AnswerLabel.INCORRECT)
        assert self.verdicts.get(ENTRY) == AnswerLabel.INCORRECT, "it does not heal"


def _file_of(verdicts: VerdictCache, key: CacheKey) -> Path:
    return verdicts._path(key)
