"""Files that are written completely or not at all, and output of commands without the output of libraries."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path that replaces `path` when the block ends without an exception.

    It is in the same folder, so that the replacement is atomic, and has a unique name, so that several processes may
    write the same file. The last one stays. The next writer on this machine removes the temporary file of one that was
    killed. A link stays, and the file that it names is replaced. A device or a pipe, such as `/dev/null` or a shell's
    `>(gzip)`, is written to once the block ends.

    Raises:
        OSError: as the block does, or the file cannot be replaced.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            partial = Path(folder, path.name)
            yield partial
            with partial.open("rb") as content, path.open("wb") as target:
                shutil.copyfileobj(content, target)
        return
    path = Path(os.path.realpath(path))
    _remove_leftovers(path)
    partial = path.with_name(f".{path.name}.{_machine()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary paths of `path` whose process has ended: SIGKILL leaves no time to do so."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.{_machine()}.*.partial"):
        writer = leftover.name.split(".")[-3]
        if writer.isdecimal() and not Path("/proc", writer).exists():
            with suppress(OSError):  # another process may remove it first
                leftover.unlink()


@cache
def _machine() -> str:
    """Where a process number names one process: the host, and the container on it, since folders are shared."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


def share_weights(folder: Path) -> None:
    """Give the files of weights below a folder the permissions that other new files there have.

    From version 0.8 on, safetensors writes through a temporary file that only its owner can read. A file that cannot be
    changed keeps its permissions: it may belong to somebody else, or lie on a file system without permissions.
    """
    for file in folder.rglob("*.safetensors"):
        if not file.is_symlink():  # what it names may be no part of the folder
            with suppress(OSError):
                # A folder has what the umask leaves, and the right to enter.
                file.chmod(file.parent.stat().st_mode & 0o666)


def write_text(path: Path, text: str) -> None:
    """Write a file completely or not at all. Characters without a UTF-8 encoding are written with backslashes."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


@dataclass
class CapturedOutput:
    """The output of a block of `hold_output`."""

    discarded: bool = False
    """The output is not printed afterwards."""


@contextmanager
def hold_output() -> Iterator[CapturedOutput]:
    """Capture both output streams, and print them on standard error afterwards; discard them after a UsageError.

    It redirects the file descriptors, because C libraries and child processes do not use `sys.stdout`. Log handlers
    that the block creates write to the real standard error afterwards.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved_stdout, saved_stderr = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        output = CapturedOutput()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield output
        except UsageError:
            output.discarded = True  # the output of libraries would hide its message
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved_stdout, 1)
            os.dup2(saved_stderr, 2)
            os.close(saved_stdout)
            os.close(saved_stderr)
            if not output.discarded:
                file.seek(0)
                sys.stderr.write(file.read().decode("utf-8", errors="replace"))
                sys.stderr.flush()
