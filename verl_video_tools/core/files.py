"""What commands write: files that appear whole or not at all, and their output without what libraries print."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` once the block ends without an exception.

    It lies in the same folder, so that taking the place is one step for every reader, and has a name of its own, so
    that several processes may write the same file: the last one stays.

    Raises:
        OSError: as the block does, or the file cannot be replaced.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Whole or not at all; what UTF-8 cannot hold is written with backslashes."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


@dataclass
class HeldOutput:
    """What was printed since `hold_output` was entered."""

    discarded: bool = False
    """Not shown in the end."""


@contextmanager
def hold_output() -> Iterator[HeldOutput]:
    """Holds back both output streams, then shows what came on standard error; after a UsageError it is discarded.

    Works on the file descriptors and not on `sys.stdout`: C libraries and child processes are held too, and log
    handlers that were made meanwhile go on writing to the real standard error.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved_stdout, saved_stderr = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        held = HeldOutput()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield held
        except UsageError:
            held.discarded = True  # its message says all; what libraries printed before would hide it
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved_stdout, 1)
            os.dup2(saved_stderr, 2)
            os.close(saved_stdout)
            os.close(saved_stderr)
            if not held.discarded:
                file.seek(0)
                sys.stderr.write(file.read().decode("utf-8", errors="replace"))
                sys.stderr.flush()
