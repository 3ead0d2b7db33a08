"""Surface `caches`: files of caches that were damaged, exchanged or written by others. Each is a miss, and heals."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np

from tests.fuzz import texts
from tests.fuzz.damage import damaged, damages
from tests.fuzz.surface import Surface
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.services.judge import CacheKey, VerdictCache
from verl_video_tools.video.batch import FrameFacts
from verl_video_tools.video.frame_store import PAGE_BYTES, FrameKey, FrameStore

PIXELS_HWC = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
FACTS = FrameFacts(7, 0.25, False)
OTHER_FACTS = FrameFacts(9, 0.75, True)
ENTRY = CacheKey("Which animal?", "a dog", "a cat", "Judge.", "model")
CHANGED = ("question", "truth", "answer", "prompt", "model")


class Caches(Surface):
    """The frame store, and verdicts of judges."""

    name: ClassVar[str] = "caches"
    unit: ClassVar[str] = "files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.frames = FrameStore(folder / "frames", 1 << 20)
        self.verdicts = VerdictCache(folder / "verdicts")

    def make(self, random: Random) -> Any:
        cache = random.choice(("frames", "frames", "ledger", "verdicts", "verdicts"))
        case: dict[str, Any] = {"cache": cache, "damages": damages(random), "as": None}
        roll = random.random()
        if cache == "frames" and roll < 0.2:
            case["as"] = "another frame"
        if cache == "verdicts" and roll < 0.4:
            case["as"] = random.choice((*CHANGED, "label")) if roll < 0.2 else texts.value(random)
        return case

    def check(self, case: Any) -> int:
        {
            "frames": self._frame,
            "ledger": self._ledger,
            "verdicts": self._verdict,
        }[case["cache"]](case["damages"], case["as"])
        return 1

    def _frame(self, kinds: list[Any], exchanged: Any) -> None:
        key, other = FrameKey("video", 7, 8, 6), FrameKey("video", 9, 8, 6)
        self.frames.write(key, FACTS, PIXELS_HWC)
        (path,) = (self.folder / "frames" / "frames" / "video").glob("7-*")
        path.write_bytes(damaged(path.read_bytes(), kinds))
        if exchanged:
            self.frames.write(other, OTHER_FACTS, PIXELS_HWC + 1)
            (wrong,) = path.parent.glob("9-*")
            wrong.replace(path)
        into = np.empty_like(PIXELS_HWC)
        facts = self.frames.read(key, into)
        assert facts is None or (facts == FACTS and np.array_equal(into, PIXELS_HWC)), facts
        self.frames.write(key, FACTS, PIXELS_HWC)
        assert self.frames.read(key, into) == FACTS and np.array_equal(into, PIXELS_HWC), "it does not heal"

    def _ledger(self, kinds: list[Any], _: Any) -> None:
        ledger, frames = self.folder / "frames" / "ledger", self.folder / "frames" / "frames"
        for path in (*frames.glob("video/*"), ledger):
            path.unlink(missing_ok=True)
        self.frames.write(FrameKey("video", 1, 8, 6), FACTS, PIXELS_HWC)
        ledger.write_bytes(damaged(ledger.read_bytes(), kinds))
        for index in (2, 3):
            self.frames.write(FrameKey("video", index, 8, 6), FACTS, PIXELS_HWC)
            into = np.empty_like(PIXELS_HWC)
            assert self.frames.read(FrameKey("video", index, 8, 6), into) == FACTS, "the next frames are not kept"
        assert self.frames.stored_bytes == 3 * PAGE_BYTES, "a wrong sum is believed"

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
    return verdicts._entries._path(key.digest())
