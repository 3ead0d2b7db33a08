"""Files that appear whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
