"""Recorded rollouts as one static HTML file that loads nothing: style, script, data and thumbnails stand in it.

What was recorded, which a policy may have written, reaches the page as JSON in blocks that no browser executes, with
every `<`, `>` and `&` escaped; the script (`viewer/*.js`) makes text nodes of it, and the page's content security
policy admits that script and style alone, by their hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.records.page import render, resource, source_hash, write_whole
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

SCRIPTS = ("dom.js", "questions.js", "timeline.js", "rollout.js", "compare.js", "list.js")


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
    page = view_page(title, SCRIPTS, {id: to_json(value) for id, value in blocks.items()})
    write_whole(out, page)
    return len(page)


# --------------------------------------------------------------------------------------------------------------- page


def view_page(title: str, scripts: Sequence[str], data: Mapping[str, str], connects: bool = False) -> bytes:
    """The viewer's page.

    Args:
        scripts: names of files in `viewer/`, in the order in which they run.
        data: texts of JSON as `to_json` writes it, by the ids of their blocks.
        connects: the page may fetch from the server that it came from; without this it loads nothing.
    """
    script = "\n".join(map(resource, scripts))
    styles = ("base.css", "style.css")
    return render(
        "page.html",
        styles,
        title=title,
        script=script,
        script_hash=source_hash(script),
        data=data,
        connects=connects,
    )


# --------------------------------------------------------------------------------------------------------------- data


def _blocks(
    lines: Sequence[Mapping[str, Any]],
    thumbnails: Thumbnails,
    token_text: Callable[[int], str] | None,
    num_left_out: int,
) -> dict[str, Any]:
    """The page's data by the ids of its blocks. The script reads a block when it first needs it."""
    paths = list(dict.fromkeys(path for line in lines if (path := video_path(line)) is not None))
    numbers = {path: number for number, path in enumerate(paths)}
    blocks: dict[str, Any] = {
        "index": {
            "num_left_out": num_left_out,
            "components": components_by_method(line["trajectory"] for line in lines),
            "videos": [{"path": path, "note": thumbnails.notes.get(path)} for path in paths],
            "rollouts": [summary_of(line, numbers) for line in lines],
        }
    }
    for path, number in numbers.items():
        if path in thumbnails.jpeg_of:
            blocks[f"video-{number}"] = pictures_of(thumbnails, path)
    ids: set[int] = set()
    for number, line in enumerate(lines):
        record = record_of(line)
        blocks[f"rollout-{number}"] = record
        if token_text is not None:
            ids.update(token_ids(record))
    if token_text is not None:
        blocks["vocabulary"] = {id: token_text(id) for id in sorted(ids)}
    return blocks
