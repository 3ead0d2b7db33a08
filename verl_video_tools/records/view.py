"""Records to the viewer's page: chooses rollouts, decodes the thumbnails, writes the file."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.html import video_path, write_html
from verl_video_tools.records.records import read_records, record_files
from verl_video_tools.records.thumbnails import Thumbnails, decode_thumbnails
from verl_video_tools.video import linspace_indices

Line = dict[str, Any]
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
    decoded: Advance | None,
    token_text: Callable[[int], str] | None = None,
) -> View:
    """Draw recorded rollouts as one page, in order of step and row.

    Args:
        records: as `read_records` takes them.
        max_rollouts: rollouts on the page at most; of more, `choose` takes some.
        decoded: called after each video whose thumbnails are decoded; None leaves thumbnails out.
        token_text: as `write_html` takes it.

    Raises:
        UsageError: there is no rollout, a line cannot be read, or the page cannot be written.
    """
    lines, num_left_out = choose(records, max_rollouts)
    if not lines:
        raise UsageError(f"{records}: no recorded rollout; give a folder with step_*.jsonl, or one such file")
    thumbnails = Thumbnails()
    if decoded is not None:
        on_videos = [(path, line["trajectory"]) for line in lines if (path := video_path(line)) is not None]
        thumbnails = decode_thumbnails(on_videos, decoded)
    num_bytes = write_html(
        lines, out, title=title, thumbnails=thumbnails, token_text=token_text, num_left_out=num_left_out
    )
    return View(len(lines), num_left_out, thumbnails, num_bytes)


def write_rollout(line: Line, out: Path, *, title: str) -> None:
    """Draw one rollout as a page, with its thumbnails.

    Args:
        line: as `write_html` takes it.

    Raises:
        UsageError: the page cannot be written.
    """
    path = video_path(line)
    thumbnails = decode_thumbnails([] if path is None else [(path, line["trajectory"])])
    write_html([line], out, title=title, thumbnails=thumbnails)


def choose(records: Path, count: int) -> tuple[list[Line], int]:
    """At most `count` rollouts, in order of step, method, row and number in the group; and how many others there are.

    Groups stay whole. The last steps come first. Of a step that does not fit whole, groups are taken that are spread
    evenly over its rows. A group larger than `count` is cut where it would be the only one.

    Args:
        records: as `read_records` takes them; a file is a step.
    """
    chosen: list[Line] = []
    num_left_out, is_full = 0, False
    for file in reversed(record_files(records)):
        if is_full:
            with file.open("rb") as unread:
                num_left_out += sum(line.endswith(b"\n") for line in unread)
            continue
        lines = list(read_records(file))
        groups = _groups(lines)
        spread = _spread(groups, count - len(chosen))
        if groups and not (chosen or spread):
            spread = [groups[0][:count]]
        of_step = [line for group in spread for line in group]
        chosen = [*sorted(of_step, key=_row), *chosen]
        num_left_out += len(lines) - len(of_step)
        is_full = len(of_step) < len(lines)
    return chosen, num_left_out


def _groups(lines: Sequence[Line]) -> list[list[Line]]:
    """Rollouts that are compared with each other, in order of method and row."""
    groups: dict[Hashable, list[Line]] = defaultdict(list)
    for position, line in enumerate(lines):
        uid = line.get("uid")
        groups[position if uid is None else str(uid)].append(line)
    for group in groups.values():
        group.sort(key=lambda line: _number(line.get("session_id")))
    return sorted(groups.values(), key=lambda group: _row(group[0]))


def _spread(groups: Sequence[Sequence[Line]], room: int) -> list[Sequence[Line]]:
    """As many groups as fit, evenly spread."""
    for count in range(min(len(groups), room), 0, -1):
        spread = [groups[position] for position in linspace_indices(0, len(groups) - 1, count)]
        if sum(map(len, spread)) <= room:
            return spread
    return []


def _row(line: Mapping[str, Any]) -> tuple[str, float]:
    return line["trajectory"].method, _number((line.get("extra_info") or {}).get("index"))


def _number(value: Any) -> float:
    """For sorting: what is no number comes last."""
    return value if isinstance(value, int | float) and math.isfinite(value) else math.inf
