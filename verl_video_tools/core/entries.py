"""Small JSON objects that are kept by digest: one file each, so that processes and machines may share a folder.

Files appear by atomic rename and are never changed, which needs no locks and also holds on network file systems.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.files import whole_file

logger = logging.getLogger(__name__)

_CHECKSUM = "sha256"


class EntryFolder:
    """Entries under `folder`, made if missing. One that was damaged, or has the name of another, counts as absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, digest: str) -> dict[str, Any] | None:
        """An entry as it was kept, or None."""
        try:
            entry = json.loads(self._path(digest).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.pop(_CHECKSUM, None) != _checksum(digest, entry):
            return None
        return entry

    def write(self, digest: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry. A full or read-only disk costs the entry, never what it is about."""
        path = self._path(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as partial:
                partial.write_text(json.dumps({**entry, _CHECKSUM: _checksum(digest, entry)}), encoding="utf-8")
        except OSError as error:
            logger.warning("nothing could be kept in %s: %s", self.folder, error)

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json"


def _checksum(digest: str, entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([digest, entry], sort_keys=True).encode()).hexdigest()
