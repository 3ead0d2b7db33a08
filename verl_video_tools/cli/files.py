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

_TEXT = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".html")
"""Suffixes that promise text."""


def check_outputs(*, rows: Paths = (), texts: Paths = (), sources: Paths = (), overwrite: bool = False) -> None:
    """Refuse, before any work is done, to write where something would be lost or misnamed.

    Args:
        rows: parquet files to write.
        texts: other files to write.
        sources: files that are read.

    Raises:
        UsageError: a file to write is a source, is to be written twice, is named as one of another kind, or exists.
    """
    read = [source for source in sources if source is not None and os.path.exists(source)]
    named = [(path, True) for path in rows] + [(path, False) for path in texts]
    written: set[Path] = set()
    for path, holds_rows in named:
        if path is None:
            continue
        if os.path.exists(path) and any(path.samefile(source) for source in read):
            raise UsageError(f"{path} is the source; name another file to write")
        if (real := Path(os.path.realpath(path))) in written:
            raise UsageError(f"{path} is to be written twice; name two files")
        written.add(real)
        if holds_rows and path.suffix.lower() in _TEXT:
            raise UsageError(f"rows are written as parquet; name a file that ends in .parquet, not {path.name}")
        if not holds_rows and path.suffix.lower() == ".parquet":
            raise UsageError(f"{path.name} would hold text, not rows; name a file that does not end in .parquet")
        if os.path.isfile(path) and not overwrite:
            raise UsageError(f"{path} exists; name another file, or replace it with --overwrite")


def check_continued(out: Path, sources: Paths = ()) -> None:
    """The same for a file of JSON lines that a command goes on with where it exists.

    Raises:
        UsageError: it is a source, or is named as a file of another kind.
    """
    check_outputs(texts=[out], sources=sources, overwrite=True)


def check_page(out: Path, sources: Paths = ()) -> None:
    """The same for an HTML page, which a command draws anew where it exists.

    Raises:
        UsageError: it is a source, or a file that is no HTML page.
    """
    check_outputs(texts=[out], sources=sources, overwrite=True)
    if os.path.isfile(out):
        with open(out, "rb") as file:
            beginning = file.read(100).lstrip().lower()
        if beginning and not beginning.startswith((b"<!doctype html", b"<html")):
            raise UsageError(f"{out} exists and is no HTML page; name another file")
