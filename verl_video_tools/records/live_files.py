"""Records that grow while they are read: what is new in a run's files since the last time.

A writer may append to a file, put another in its place, cut it short, or remove the whole run. A line is read once its
line end is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.records import Place, read_line, record_files, whole_lines
from verl_video_tools.records.sample import Entry, entry_of

_END_BYTES = 256
"""At either end of what was read of a file, to notice that others stand there now: a file may get the inode of one that
was removed."""


@dataclass
class _File:
    """A file as far as it was read."""

    identity: tuple[int, int]
    """Device and inode."""
    ends: tuple[bytes, bytes] = (b"", b"")
    num_read_bytes: int = 0
    next_line: int = 1
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Of lines that cannot be read."""
    error: str | None = None
    """Why the file could not be read the last time: it may pass, as a network's does, without the file changing."""
    written_at: float | None = None


class LiveFiles:
    """The rollouts of a run, also while it goes on.

    Args:
        run: as `records.read_records` takes it. It may hold no step yet.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._files: dict[Path, _File] = {}
        self._num_entries = 0

    def read_new(self, read: Callable[[int], None] = lambda count: None) -> bool:
        """Read what was written since the last call; whether anything has changed.

        Args:
            read: called after each file with the number of rollouts read so far.
        """
        paths = record_files(self._run)
        gone = self._files.keys() - set(paths)
        for path in gone:
            del self._files[path]
        is_changed = bool(gone)
        for path in paths:
            if self._read_file(path):
                is_changed = True
                read(self._num_entries)
        return is_changed

    def entries(self) -> list[Entry]:
        """All rollouts. Their positions are never given twice."""
        return [entry for file in self._files.values() for entry in file.entries]

    def notes(self) -> list[str]:
        """Lines and files that cannot be read, by name."""
        return [note for file in self._files.values() for note in (*file.notes, *([file.error] if file.error else []))]

    def written_at(self) -> float | None:
        """When a file of records was last written to, in seconds since the epoch; None without one."""
        return max((file.written_at for file in self._files.values() if file.written_at is not None), default=None)

    def exists(self) -> bool:
        """Whether the run's folder or file is there."""
        return self._run.exists()

    def line(self, entry: Entry) -> dict[str, Any]:
        """The recorded line, as `read_records` gives it.

        Raises:
            UsageError: it is not there any more.
        """
        known = self._files.get(entry.place.file)
        try:
            with entry.place.file.open("rb") as file:
                if known is not None and known.identity == _identity(file.fileno()):
                    file.seek(entry.place.offset)
                    return read_line(file.readline(), entry.place)
        except OSError:
            pass
        raise UsageError(f"{entry.place.file}, line {entry.place.line}: this rollout is not there any more")

    def _read_file(self, path: Path) -> bool:
        """Whether the file has other lines now, or another reason why it cannot be read."""
        try:
            is_changed = self._read_lines(path)
            error = None
        except FileNotFoundError:
            return self._files.pop(path, None) is not None
        except OSError as failure:
            is_changed = False
            error = f"{path}: cannot be read ({failure.strerror or failure})"
        known = self._files.setdefault(path, _File((0, 0)))
        is_changed |= known.error != error
        known.error = error
        return is_changed

    def _read_lines(self, path: Path) -> bool:
        known = self._files.get(path)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if known is not None and (known.written_at, known.num_read_bytes) == (status.st_mtime, status.st_size):
                return False
            is_other = known is None or (
                known.identity != _identity(file.fileno())
                or status.st_size < known.num_read_bytes
                or _ends(file, known.num_read_bytes) != known.ends
            )
            if is_other or known is None:
                known = self._files[path] = _File(_identity(file.fileno()))
            known.written_at = status.st_mtime
            file.seek(known.num_read_bytes)
            first = Place(path, known.next_line, known.num_read_bytes)
            num_new = sum(self._add(known, place, text) for place, text in whole_lines(file, first))
            known.ends = _ends(file, known.num_read_bytes)
            return is_other or num_new > 0

    def _add(self, file: _File, place: Place, text: bytes) -> int:
        """Takes up a line, and gives 1."""
        file.num_read_bytes = place.offset + len(text)
        file.next_line = place.line + 1
        try:
            file.entries.append(entry_of(place, read_line(text, place), self._num_entries))
        except UsageError as error:
            file.notes.append(str(error))
        self._num_entries += 1
        return 1


def _ends(file: BinaryIO, num_bytes: int) -> tuple[bytes, bytes]:
    count = min(_END_BYTES, num_bytes)
    file.seek(0)
    head = file.read(count)
    file.seek(num_bytes - count)
    return head, file.read(count)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
