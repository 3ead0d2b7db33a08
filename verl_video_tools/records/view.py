"""Recorded rollouts as one static HTML page. It holds style, script, data and thumbnails, and loads nothing.

A policy may write markup. Everything recorded therefore stands in the page as JSON in blocks that no browser executes,
with `<`, `>` and `&` escaped (`_to_json`), and the script (`viewer/*.js`) turns it into text nodes.
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.files import write_text
from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.metrics import components_of, not_scored
from verl_video_tools.records.records import read_records, record_files
from verl_video_tools.records.thumbnails import Thumbnails, decode_thumbnails
from verl_video_tools.video import linspace_indices

Line = dict[str, Any]
Advance = Callable[[int, int], None]
"""Called with the number of videos done and in total."""
_SCRIPTS = ("dom.js", "timeline.js", "rollout.js", "list.js")
"""Files in `viewer/`, in the order in which they run."""
_QUESTION_CHARACTERS = 600
"""Longest question in the list; the rollout has the whole question."""


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
        max_rollouts: rollouts on the page at most, as `choose` selects them.
        decoded: called after each video whose thumbnails are decoded; None draws no thumbnails.
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
    """At most `count` rollouts, in order of step, method, row and number in the group; and the number of all others.

    The last steps are selected first, and groups stay whole. If a step does not fit, evenly spread groups of it are
    selected. A group larger than `count` is cut if it would be the only one.

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
    """The groups of rollouts, in order of method and row."""
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
    """A key for sorting, in which missing values come last."""
    return value if isinstance(value, int | float) and math.isfinite(value) else math.inf


# ---------------------------------------------------------------------------------------------------------- the page


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
        lines: as `records.records.read_records` gives them. Only `trajectory` is required; the page shows other missing
            keys as not recorded.
        thumbnails: images of the frames by the rows' `extra_info.video_path`.
        token_text: text of a token; without it tokens are shown as ids.
        num_left_out: rollouts of the run that are not in `lines`; the page shows this number.

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
        data="\n".join(f'<script type="application/json" id="{id}">{_to_json(value)}</script>' for id, value in blocks),
    )
    if out.is_dir():  # "." has no name to write beside
        raise UsageError(f"cannot write {out}: it is a folder; name a file")
    with writing(out, "name another file"):
        write_text(out, page)
    return out.stat().st_size


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
            "components": _components_by_method(line["trajectory"] for line in lines),
            "videos": [{"path": path, "note": thumbnails.notes.get(path)} for path in paths],
            "rollouts": [_summary_of(line, numbers) for line in lines],
        },
    )
    for path, number in numbers.items():
        if path in thumbnails.jpeg_of:
            yield f"video-{number}", _pictures_of(thumbnails, path)
    ids: set[int] = set()
    for number, line in enumerate(lines):
        record = _record_of(line)
        yield f"rollout-{number}", record
        ids.update(_token_ids(record))
    if token_text is not None:
        yield "vocabulary", {id: token_text(id) for id in sorted(ids)}


def _to_json(value: Any) -> str:
    """JSON in ASCII without characters that have a meaning in HTML."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no infinite numbers, so the page shows them by name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return value


def video_path(line: Mapping[str, Any]) -> str | None:
    """Path of the video in the line's row."""
    path = (line.get("extra_info") or {}).get("video_path")
    return None if path is None else str(path)


def _pictures_of(thumbnails: Thumbnails, path: str) -> dict[str, str]:
    """Thumbnails of a video as base64, by the script's keys: the frame (`10`), or the frame and the edges of the part
    (`10,0,0,32,18`)."""
    return {
        ",".join(map(str, (index, *(region or ())))): base64.b64encode(jpeg).decode()
        for (index, region), jpeg in thumbnails.jpeg_of[path].items()
    }


def _token_ids(record: Mapping[str, Any]) -> set[int]:
    """Ids of all tokens of a record, as `_record_of` gives it."""
    return {run[0] for part in record["sequences"] for run in (*part["prompt"], *part["response"])}


def _components_by_method(trajectories: Iterable[Trajectory]) -> dict[str, list[str]]:
    """Reward components by method, without methods that are not installed."""
    components: dict[str, dict[str, None]] = {}
    for trajectory in trajectories:
        components.setdefault(trajectory.method, {}).update(dict.fromkeys(components_of(trajectory)))
    return {name: list(members) for name, members in sorted(components.items()) if members}


def _summary_of(line: Mapping[str, Any], video_numbers: Mapping[str, int]) -> dict[str, Any]:
    """A rollout in the list and in the table of its group."""
    trajectory: Trajectory = line["trajectory"]
    counts = trajectory.counts()
    path = video_path(line)
    return {
        "step": line.get("step"),
        "uid": line.get("uid"),
        "session": line.get("session_id"),
        "method": trajectory.method,
        "stop": None if trajectory.stop_reason is None else str(trajectory.stop_reason),
        "score": (line.get("reward") or {}).get("score"),
        "advantage": line.get("advantage"),
        "calls": counts["executed_calls"],
        "frames": counts["initial_frames"] + counts["tool_frames"],
        "answer": trajectory.answer,
        "settings": trajectory.settings,
        "question": " ".join(trajectory.question.split())[:_QUESTION_CHARACTERS],
        "video": None if path is None else video_numbers[path],
    }


def _record_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """A rollout in full."""
    separate_keys = ("trajectory", "reward", "not_scored", "sequences", "ground_truth")
    return {
        "trajectory": line["trajectory"].to_dict(),
        "ground_truth": line.get("ground_truth"),
        "reward": line.get("reward") or {},
        "not_scored": not_scored(line),
        "evidence_seconds": (line.get("extra_info") or {}).get("video_segment"),
        "row": {name: value for name, value in line.items() if name not in separate_keys},
        "sequences": [_sequence(sequence) for sequence in line.get("sequences") or []],
    }


def _sequence(sequence: Mapping[str, Any]) -> dict[str, Any]:
    """A training sequence in which repeated tokens of the context, such as those of an image, are counted.

    A run of equal tokens is `[id, times, mask]`, with mask 0 in the prompt. A sampled token is a run of its own, with
    its log-probabilities in the rollout and in training: None in held-out rollouts, which are not trained on.
    """
    unknown = [None] * len(sequence["responses"])
    log_probs = [sequence.get(name, unknown) for name in ("rollout_log_probs", "old_log_probs")]
    response: list[list[Any]] = []
    for id, mask, *pair in zip(sequence["responses"], sequence["response_mask"], *log_probs, strict=True):
        if mask:  # all digits would be half of the page
            response.append([id, 1, 1, *(None if value is None else round(value, 4) for value in pair)])
        elif response and response[-1][0] == id and response[-1][2] == 0:
            response[-1][1] += 1
        else:
            response.append([id, 1, 0])
    advantages = sequence.get("advantages", unknown)
    trained = [value for value, mask in zip(advantages, sequence["response_mask"], strict=True) if mask]
    return {
        "prompt": [[id, len(list(run)), 0] for id, run in groupby(sequence["prompts"])],
        "response": response,
        "advantage": trained[0] if trained else None,
    }
