"""Verdicts on disk: one small JSON file per judgement, so that processes and machines may share a folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from verl_video_tools.core.entries import EntryFolder


@dataclass(frozen=True, slots=True)
class CacheKey:
    """All that a verdict depends on."""

    question: str
    truth: str
    answer: str
    prompt: str
    model: str

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class VerdictCache:
    """Verdicts by content under `folder` (`EntryFolder`)."""

    def __init__(self, folder: Path) -> None:
        self._entries = EntryFolder(folder)

    def get(self, key: CacheKey) -> str | None:
        entry = self._entries.read(key.digest())
        return None if entry is None else entry["label"]

    def put(self, key: CacheKey, verdict: str) -> None:
        words = asdict(key)
        del words["prompt"]  # long, and the same for many
        self._entries.write(key.digest(), {**words, "label": verdict})
