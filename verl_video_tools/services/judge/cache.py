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
            return AnswerLabel(json.loads(self._path(key).read_text(encoding="utf-8"))["label"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, key: CacheKey, label: AnswerLabel) -> None:
        """Keep a verdict. A full or read-only disk costs the entry, never the verdict."""
        path = self._path(key)
        # Question, truth and answer are written for readers; only the label is read again.
        entry = {**asdict(key), "label": label.value}
        entry.pop("prompt")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as partial:
                partial.write_text(json.dumps(entry), encoding="utf-8")
        except OSError as error:
            logger.warning("a verdict could not be kept in %s: %s", self.folder, error)

    def _path(self, key: CacheKey) -> Path:
        digest = key.digest()
        return self.folder / digest[:2] / f"{digest}.json"
