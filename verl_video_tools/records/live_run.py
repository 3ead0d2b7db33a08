"""What a live page shows of a run: which rollouts, and what has changed since it last asked.

Pages ask again and again, each with the version that it knows, so that the server keeps nothing about them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.live_files import LiveFiles
from verl_video_tools.records.sample import Entry, sample
from verl_video_tools.records.thumbnails import decode_thumbnails
from verl_video_tools.records.view_data import (
    components_by_method,
    pictures_of,
    record_of,
    summary_of,
    token_ids,
    video_path,
)

MIN_SECONDS = 1.0
"""Between two readings of the run's files, however many pages ask."""
_MAX_KEPT_PICTURES = 64
_MAX_NOTES = 20
"""Of lines that cannot be read; the page says how many more there are."""


@dataclass(frozen=True)
class _Shown:
    entry: Entry
    summary: dict[str, Any]
    components: dict[str, list[str]]
    since: int
    """The version with which it came."""


class LiveRun:
    """A run that is being watched. May be used from several threads.

    Args:
        run: folder of a run or of its records, or one file of records. It may hold no step yet.
        max_rollouts: shown at most; of more, `sample.sample` chooses, the last steps first.
        pictures: decode the frames that were shown, of a rollout when it is opened.
        token_text: text of a token; without it tokens are shown as ids.
        min_seconds: between two readings of the files.
    """

    def __init__(
        self,
        run: Path,
        *,
        max_rollouts: int = 500,
        pictures: bool = True,
        token_text: Callable[[int], str] | None = None,
        min_seconds: float = MIN_SECONDS,
    ) -> None:
        self._run, self._max_rollouts, self._min_seconds = run, max_rollouts, min_seconds
        self._has_pictures, self._token_text = pictures, token_text
        self._files = LiveFiles(run)
        self._lock, self._decoding = threading.Lock(), threading.Lock()
        self._read_at = float("-inf")
        self._exists: bool | None = None
        self._version = 0
        self._num_left_out = 0
        self._shown: dict[int, _Shown] = {}
        self._video_numbers: dict[str, int] = {}
        self._kept_pictures: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def read(self, read: Callable[[int], None]) -> None:
        """Read what is there already, which takes a while where it is much.

        Args:
            read: called with the number of rollouts read so far.
        """
        with self._lock:
            self._read(read)

    def changes(self, since: int) -> dict[str, Any]:
        """What a page needs that knows a version; 0 knows nothing.

        Returns:
            `version`; `seconds_since_written`, None before the first record; and, where the page lacks something:
            `order`, the ids of the rollouts shown, newest step first; `added`, the summaries of those that it lacks,
            each with its `id`; `videos`, their paths by number; `components`; `num_left_out`; `notes`.
        """
        with self._lock:
            self._read()
            written_at = self._files.written_at()
            age = None if written_at is None else max(0.0, time.time() - written_at)
            told: dict[str, Any] = {"version": self._version, "seconds_since_written": age}
            if since == self._version:
                return told
            added = [shown.summary for shown in self._shown.values() if since < shown.since or since > self._version]
            numbers = {summary["video"] for summary in added}
            components: dict[str, dict[str, None]] = {}
            for shown in self._shown.values():
                for method, names in shown.components.items():
                    components.setdefault(method, {}).update(dict.fromkeys(names))
            return told | {
                "order": list(self._shown),
                "added": added,
                "videos": {number: path for path, number in self._video_numbers.items() if number in numbers},
                "components": {method: list(names) for method, names in components.items()},
                "num_left_out": self._num_left_out,
                "notes": self._notes(),
            }

    def record(self, id: int) -> dict[str, Any]:
        """A rollout as `view_data.record_of` gives it, with the `vocabulary` of its tokens where these have texts.

        Raises:
            UsageError: it is not shown, or not there any more.
        """
        record = record_of(self._line(id))
        if self._token_text is not None:
            record["vocabulary"] = {token: self._token_text(token) for token in sorted(token_ids(record))}
        return record

    def pictures(self, id: int) -> dict[str, Any]:
        """Thumbnails of a rollout: `pictures` as `view_data.pictures_of` names them, and a `note` where there are none.

        Raises:
            UsageError: the rollout is not shown, or not there any more.
        """
        line = self._line(id)
        path = video_path(line)
        if path is None or not self._has_pictures:
            return {"pictures": {}, "note": None}
        with self._decoding:  # one at a time: a training run needs the processor more
            if id not in self._kept_pictures:
                thumbnails = decode_thumbnails([(path, line["trajectory"])])
                self._kept_pictures[id] = {
                    "pictures": pictures_of(thumbnails, path),
                    "note": thumbnails.notes.get(path),
                }
                if len(self._kept_pictures) > _MAX_KEPT_PICTURES:
                    self._kept_pictures.popitem(last=False)
            return self._kept_pictures[id]

    def _line(self, id: int) -> dict[str, Any]:
        with self._lock:
            if id not in self._shown:
                raise UsageError("this rollout is not shown any more")
            return self._files.line(self._shown[id].entry)

    def _read(self, read: Callable[[int], None] = lambda count: None) -> None:
        if time.monotonic() - self._read_at < self._min_seconds:
            return
        is_changed = self._files.read_new(read)
        exists = self._files.exists()
        if is_changed or exists != self._exists:
            self._exists = exists
            self._version += 1
            self._choose()
        self._read_at = time.monotonic()

    def _choose(self) -> None:
        entries = self._files.entries()
        chosen = sorted(sample(entries, self._max_rollouts), key=lambda entry: -entry.step) if entries else []
        shown: dict[int, _Shown] = {}
        for entry in chosen:
            kept = self._shown.get(entry.position) or self._summarised(entry)
            if kept is not None:
                shown[entry.position] = kept
        self._shown = shown
        self._num_left_out = len(entries) - len(shown)

    def _summarised(self, entry: Entry) -> _Shown | None:
        try:
            line = self._files.line(entry)
        except UsageError:  # replaced since it was read; the next reading tells
            return None
        if (path := video_path(line)) is not None:
            self._video_numbers.setdefault(path, len(self._video_numbers))
        summary = {"id": entry.position, **summary_of(line, self._video_numbers)}
        return _Shown(entry, summary, components_by_method([line["trajectory"]]), self._version)

    def _notes(self) -> list[str]:
        notes = self._files.notes()
        left_out = [f"{len(notes) - _MAX_NOTES} more"] if len(notes) > _MAX_NOTES else []
        if not self._exists:
            return [f"{self._run} is not there any more"]
        return notes[:_MAX_NOTES] + left_out
