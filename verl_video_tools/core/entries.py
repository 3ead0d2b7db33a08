"""Small JSON objects that are kept by digest: one file each, so that processes and machines may share a folder.

Files appear by atomic rename and are never changed, which needs no locks and also holds on network file systems.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.files import whole_file

logger = logging.getLogger(__name__)


class EntryFolder:
    """Entries under `folder`, made if missing. Whether an entry is the one that was kept, its reader has to check."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, digest: str) -> dict[str, Any] | None:
        """An entry; None where there is none, or what is there cannot be read."""
        try:
            entry = json.loads(self._path(digest).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return entry if isinstance(entry, dict) else None

    def write(self, digest: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry. A full or read-only disk costs the entry, never what it is about."""
        path = self._path(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as partial:
                partial.write_text(json.dumps(entry), encoding="utf-8")
        except OSError as error:
            logger.warning("nothing could be kept in %s: %s", self.folder, error)

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json"
