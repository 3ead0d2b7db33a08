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
    """Verdicts, labels or scores as text, by content under `folder`, made if missing. A file that cannot be read counts
    as absent."""

    def __init__(self, folder: Path) -> None:
        self._entries = EntryFolder(folder)

    def get(self, key: CacheKey) -> str | None:
        entry = self._entries.read(key.digest())
        verdict = None if entry is None else entry.get("label")
        # Not one that was renamed, or damaged in its words.
        return verdict if isinstance(verdict, str) and entry == _entry(key, verdict) else None

    def put(self, key: CacheKey, verdict: str) -> None:
        self._entries.write(key.digest(), _entry(key, verdict))


def _entry(key: CacheKey, verdict: str) -> dict[str, str]:
    """What a file holds. The prompt is long, and the same for many: it counts in the checksum alone, as the label does:
    `incorrect` that lost two bytes is another verdict."""
    words = {"question": key.question, "truth": key.truth, "answer": key.answer, "model": key.model}
    checksum = hashlib.sha256(f"{key.digest()} {verdict}".encode()).hexdigest()
    return {**words, "label": verdict, "sha256": checksum}
