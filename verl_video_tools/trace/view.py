"""Records to the viewer's page: reads them, decodes the thumbnails, writes the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.errors import UsageError
from verl_video_tools.trace.html import video_path, write_html
from verl_video_tools.trace.records import read_records
from verl_video_tools.trace.thumbnails import Thumbnails, decode_thumbnails

Advance = Callable[[int, int], None]
"""Called with the numbers done and wanted."""


@dataclass(frozen=True)
class View:
    """A page that was written."""

    num_rollouts: int
    num_left_out: int
    """Earlier rollouts that are not on the page."""
    thumbnails: Thumbnails
    num_bytes: int


def write_view(
    records: Path,
    out: Path,
    *,
    title: str,
    max_rollouts: int,
    read: Advance,
    decoded: Advance | None,
    token_text: Callable[[int], str] | None = None,
) -> View:
    """Draw the last rollouts of some records as one page.

    Args:
        records: as `read_records` takes them.
        max_rollouts: rollouts on the page at most.
        read: told of each rollout that is read.
        decoded: told of each video whose thumbnails are decoded; None leaves thumbnails out.
        token_text: as `write_html` takes it.

    Raises:
        UsageError: there is no rollout, a line cannot be read, or the page cannot be written.
    """
    lines: deque[dict[str, Any]] = deque(maxlen=max_rollouts)
    num_read = 0
    for num_read, line in enumerate(read_records(records), start=1):
        lines.append(line)
        read(num_read, num_read)
    if not lines:
        raise UsageError(f"{records}: no recorded rollout; give a folder with step_*.jsonl, or one such file")
    thumbnails = Thumbnails()
    if decoded is not None:
        on_videos = [(path, line["trajectory"]) for line in lines if (path := video_path(line)) is not None]
        thumbnails = decode_thumbnails(on_videos, decoded)
    num_left_out = num_read - len(lines)
    num_bytes = write_html(
        list(lines), out, title=title, thumbnails=thumbnails, token_text=token_text, num_left_out=num_left_out
    )
    return View(len(lines), num_left_out, thumbnails, num_bytes)
