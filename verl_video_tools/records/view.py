"""Records to the viewer's page: reads them, decodes the thumbnails, writes the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.html import write_html
from verl_video_tools.records.records import read_again
from verl_video_tools.records.sample import read_entries, sample
from verl_video_tools.records.thumbnails import Thumbnails, decode_thumbnails
from verl_video_tools.records.view_data import video_path

Advance = Callable[[int, int], None]
"""Called with the numbers done and wanted."""


@dataclass(frozen=True)
class View:
    """A page that was written."""

    num_rollouts: int
    num_left_out: int
    """Rollouts that are not on the page."""
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
    """Draw recorded rollouts as one page, in order of step and row.

    Args:
        records: as `read_records` takes them.
        max_rollouts: rollouts on the page at most; of more, `sample` chooses.
        read: told of each rollout that is read.
        decoded: told of each video whose thumbnails are decoded; None leaves thumbnails out.
        token_text: as `write_html` takes it.

    Raises:
        UsageError: there is no rollout, a line cannot be read, or the page cannot be written.
    """
    entries = read_entries(records, lambda count: read(count, count))
    if not entries:
        raise UsageError(f"{records}: no recorded rollout; give a folder with step_*.jsonl, or one such file")
    lines = [read_again(entry.place) for entry in sample(entries, max_rollouts)]
    thumbnails = Thumbnails()
    if decoded is not None:
        on_videos = [(path, line["trajectory"]) for line in lines if (path := video_path(line)) is not None]
        thumbnails = decode_thumbnails(on_videos, decoded)
    num_left_out = len(entries) - len(lines)
    num_bytes = write_html(
        lines, out, title=title, thumbnails=thumbnails, token_text=token_text, num_left_out=num_left_out
    )
    return View(len(lines), num_left_out, thumbnails, num_bytes)
