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

_VERSION = 1
"""Of the form of entries; one of another form is asked again."""


class ReplyCache:
    """Completions by request under `folder`, made if missing.

    An entry that was damaged, or stands under another's name, counts as absent.
    """

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
        asked = {"version": _VERSION, **body, "model": model}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def get(self, digest: str) -> Completion | None:
        entry = self._entries.read(digest)
        completion = None if entry is None else entry.get("completion")
        names = {field.name for field in fields(Completion)}
        if not isinstance(completion, dict) or completion.keys() != names:
            return None
        return Completion(**completion) if entry == _entry(digest, completion) else None

    def put(self, digest: str, completion: Completion) -> None:
        self._entries.write(digest, _entry(digest, asdict(completion)))


def _entry(digest: str, completion: dict[str, Any]) -> dict[str, Any]:
    content = json.dumps([digest, completion], sort_keys=True)
    return {"completion": completion, "sha256": hashlib.sha256(content.encode()).hexdigest()}
