"""Recorded rollouts as one static HTML file, which holds style, script, data and thumbnails and loads nothing.

A policy may have written markup. Everything recorded therefore stands in the page as JSON in blocks that no browser
executes, with `<`, `>` and `&` escaped (`view_data.to_json`), and the script (`viewer/*.js`) turns it into text nodes.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.files import whole_file
from verl_video_tools.records.thumbnails import Thumbnails
from verl_video_tools.records.view_data import (
    components_by_method,
    pictures_of,
    record_of,
    summary_of,
    to_json,
    token_ids,
    video_path,
)

_SCRIPTS = ("dom.js", "timeline.js", "rollout.js", "list.js")
"""Files in `viewer/`, in the order in which they run."""


def write_html(
    lines: Sequence[Mapping[str, Any]],
    out: Path,
    *,
    title: str,
    thumbnails: Thumbnails | None = None,
    token_text: Callable[[int], str] | None = None,
    num_left_out: int = 0,
) -> int:
    """Write rollouts, in the order given, as one page; the file appears only when it is complete.

    Args:
        lines: as `records.records.read_records` gives them. Only `trajectory` is needed; what else a line lacks is
            shown as not recorded.
        thumbnails: images of the frames by the rows' `extra_info.video_path`.
        token_text: text of a token; without it tokens are shown as ids.
        num_left_out: rollouts of the run that are not among `lines`, for the page to say.

    Returns:
        Size of the page in bytes.

    Raises:
        UsageError: the file cannot be written.
    """
    blocks = _blocks(lines, thumbnails or Thumbnails(), token_text, num_left_out)
    page = Template(_resource("page.html")).substitute(
        title=html.escape(title),
        style=_resource("style.css"),
        script="\n".join(map(_resource, _SCRIPTS)),
        data="\n".join(f'<script type="application/json" id="{id}">{to_json(value)}</script>' for id, value in blocks),
    )
    content = page.encode("utf-8", errors="replace")
    if out.is_dir():  # "." has no name to write beside
        raise UsageError(f"{out}: cannot be written, it is a folder; name a file")
    try:
        with whole_file(out) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
    return len(content)


def _resource(name: str) -> str:
    return (files("verl_video_tools.records") / "viewer" / name).read_text(encoding="utf-8")


def _blocks(
    lines: Sequence[Mapping[str, Any]],
    thumbnails: Thumbnails,
    token_text: Callable[[int], str] | None,
    num_left_out: int,
) -> Iterator[tuple[str, Any]]:
    """The page's data with the ids of its blocks. The script reads a block when it first needs it."""
    paths = list(dict.fromkeys(path for line in lines if (path := video_path(line)) is not None))
    numbers = {path: number for number, path in enumerate(paths)}
    yield (
        "index",
        {
            "num_left_out": num_left_out,
            "components": components_by_method(line["trajectory"] for line in lines),
            "videos": [{"path": path, "note": thumbnails.notes.get(path)} for path in paths],
            "rollouts": [summary_of(line, numbers) for line in lines],
        },
    )
    for path, number in numbers.items():
        if path in thumbnails.jpeg_of:
            yield f"video-{number}", pictures_of(thumbnails, path)
    ids: set[int] = set()
    for number, line in enumerate(lines):
        record = record_of(line)
        yield f"rollout-{number}", record
        ids.update(token_ids(record))
    if token_text is not None:
        yield "vocabulary", {id: token_text(id) for id in sorted(ids)}
