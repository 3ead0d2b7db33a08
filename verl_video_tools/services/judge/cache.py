"""Verdicts on disk: one small JSON file per judgement, so that processes and machines may share a folder.

Files appear by atomic rename and are never changed, which needs no locks and also holds on network file systems.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from verl_video_tools.core.files import whole_file
from verl_video_tools.core.types import AnswerLabel

logger = logging.getLogger(__name__)


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
    """Verdicts by content under `folder`, made if missing. A file that cannot be read counts as absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: CacheKey) -> AnswerLabel | None:
        try:
            entry = json.loads(self._path(key).read_text(encoding="utf-8"))
            label = AnswerLabel(entry["label"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return label if entry == _entry(key, label) else None  # not one that was renamed, or damaged in its words

    def put(self, key: CacheKey, label: AnswerLabel) -> None:
        """Keep a verdict. A full or read-only disk costs the entry, never the verdict."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as partial:
                partial.write_text(json.dumps(_entry(key, label)), encoding="utf-8")
        except OSError as error:
            logger.warning("a verdict could not be kept in %s: %s", self.folder, error)

    def _path(self, key: CacheKey) -> Path:
        digest = key.digest()
        return self.folder / digest[:2] / f"{digest}.json"


def _entry(key: CacheKey, label: AnswerLabel) -> dict[str, str]:
    """What a file holds. The prompt is long, and the same for many: it counts in the checksum alone, as the label does:
    `incorrect` that lost two bytes is another verdict."""
    words = {"question": key.question, "truth": key.truth, "answer": key.answer, "model": key.model}
    checksum = hashlib.sha256(f"{key.digest()} {label.value}".encode()).hexdigest()
    return {**words, "label": label.value, "sha256": checksum}
