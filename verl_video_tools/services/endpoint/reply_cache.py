"""Replies of a model on disk, by the content of the request, so that the same request is not made twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from verl_video_tools.core.entries import EntryFolder
from verl_video_tools.services.endpoint.chat import Completion

_FORM = [field.name for field in fields(Completion)]
"""What an entry holds; where it was kept in another form, the same is asked again."""


class ReplyCache:
    """Completions by request under `folder` (`EntryFolder`)."""

    def __init__(self, folder: Path) -> None:
        self._entries = EntryFolder(folder)

    @staticmethod
    def digest(body: Mapping[str, Any], model: str) -> str | None:
        """What a request is known by; None where the same request may be answered otherwise: it is sampled, and has no
        seed.

        Args:
            body: of the request, with the images in its messages.
            model: what tells its weights apart from others, which stands for the name in the body.
        """
        if body.get("temperature") != 0 and body.get("seed") is None:
            return None
        asked = {"form": _FORM, **body, "model": model}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def get(self, digest: str) -> Completion | None:
        entry = self._entries.read(digest)
        return None if entry is None else Completion(**entry)

    def put(self, digest: str, completion: Completion) -> None:
        self._entries.write(digest, asdict(completion))
