"""Files that commands write: never over what is read, and over another file only with --overwrite."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from verl_video_tools.core.errors import UsageError

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]
Paths = Iterable[Path | None]
"""None: an option that is not given."""


def check_outputs(outputs: Paths, sources: Paths = (), *, overwrite: bool = False) -> None:
    """Refuse, before any work is done, to write where something would be lost.

    Args:
        sources: files that are read.
        overwrite: files that exist may be replaced, or are continued.

    Raises:
        UsageError: a file to write is a source, is to be written twice, or exists.
    """
    read = [source for source in sources if source is not None and os.path.exists(source)]
    written: set[Path] = set()
    for path in outputs:
        if path is None:
            continue
        if os.path.exists(path) and any(path.samefile(source) for source in read):
            raise UsageError(f"{path} is the source; name another file to write")
        if (real := Path(os.path.realpath(path))) in written:
            raise UsageError(f"{path} is to be written twice; name two files")
        written.add(real)
        if os.path.isfile(path) and not overwrite:
            raise UsageError(f"{path} exists; name another file, or replace it with --overwrite")


def check_page(out: Path, sources: Paths = ()) -> None:
    """The same for an HTML page, which a command draws anew where it exists.

    Raises:
        UsageError: it is a source, or a file that is no HTML page.
    """
    check_outputs([out], sources, overwrite=True)
    if os.path.isfile(out) and out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} exists and is not an HTML page; name another file")
