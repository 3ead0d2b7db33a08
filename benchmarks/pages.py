"""Tables of benchmarks in the pages of the documentation."""

from __future__ import annotations

from pathlib import Path


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Put a text between two markers of a page, in place of what stands there."""
    before, found_begin, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"{page} lacks the markers {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
