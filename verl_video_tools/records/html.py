"""Recorded rollouts as one static HTML file that loads nothing: style, script, data and thumbnails stand in it.

What was recorded, which a policy may have written, reaches the page as JSON in blocks that no browser executes, with
every `<`, `>` and `&` escaped; the script (`viewer/*.js`) makes text nodes of it, and the page's content security
policy admits that script and style alone, by their hashes.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.metrics import components_of, not_scored
from verl_video_tools.records.page import render, resource, source_hash, write_whole
from verl_video_tools.records.thumbnails import Thumbnails

_SCRIPTS = ("dom.js", "timeline.js", "rollout.js", "list.js")
_QUESTION_CHARACTERS = 200
"""Of a question in the list; the whole one stands with its rollout."""


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
    page = _page(title, blocks)
    write_whole(out, page)
    return len(page)


def video_path(line: Mapping[str, Any]) -> str | None:
    """Path of a line's video, as its row has it."""
    path = (line.get("extra_info") or {}).get("video_path")
    return None if path is None else str(path)


# --------------------------------------------------------------------------------------------------------------- page


def _page(title: str, blocks: Mapping[str, Any]) -> bytes:
    script = "\n".join(map(resource, _SCRIPTS))
    data = {id: _json(value) for id, value in blocks.items()}
    styles = ("base.css", "style.css")
    return render("page.html", styles, title=title, script=script, script_hash=source_hash(script), data=data)


def _json(value: Any) -> str:
    """JSON that is ASCII and holds no character with a meaning in HTML."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON knows no infinite numbers: they are shown by name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return value


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
            "components": _components([line["trajectory"] for line in lines]),
            "videos": [{"path": path, "note": thumbnails.notes.get(path)} for path in paths],
            "rollouts": [_summary(line, numbers) for line in lines],
        }
    }
    for path, number in numbers.items():
        if path in thumbnails.jpeg_of:
            # As the script names them: by frame, and by frame and edges of the part.
            parts = thumbnails.part_jpeg_of.get(path, {})
            jpegs = {str(index): jpeg for index, jpeg in thumbnails.jpeg_of[path].items()}
            jpegs |= {",".join(map(str, (index, *region))): jpeg for (index, region), jpeg in parts.items()}
            blocks[f"video-{number}"] = {name: base64.b64encode(jpeg).decode() for name, jpeg in jpegs.items()}
    ids: set[int] = set()
    for number, line in enumerate(lines):
        record = _record(line)
        blocks[f"rollout-{number}"] = record
        if token_text is not None:
            ids.update(run[0] for part in record["sequences"] for run in (*part["prompt"], *part["response"]))
    if token_text is not None:
        blocks["vocabulary"] = {id: token_text(id) for id in sorted(ids)}
    return blocks


def _components(trajectories: Iterable[Trajectory]) -> dict[str, list[str]]:
    """Reward components by method; a method that this version does not know is left out."""
    components: dict[str, dict[str, None]] = {}
    for trajectory in trajectories:
        components.setdefault(trajectory.method, {}).update(dict.fromkeys(components_of(trajectory)))
    return {name: list(members) for name, members in sorted(components.items()) if members}


def _summary(line: Mapping[str, Any], video_numbers: Mapping[str, int]) -> dict[str, Any]:
    """What the list and the table of a group show of a rollout."""
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
        "own": {**trajectory.settings, **trajectory.sampling},
        "question": trajectory.question[:_QUESTION_CHARACTERS],
        "video": None if path is None else video_numbers[path],
    }


def _record(line: Mapping[str, Any]) -> dict[str, Any]:
    shown_elsewhere = ("trajectory", "reward", "not_scored", "sequences", "ground_truth")
    return {
        "trajectory": line["trajectory"].to_dict(),
        "ground_truth": line.get("ground_truth"),
        "reward": line.get("reward") or {},
        "not_scored": line["not_scored"] if "not_scored" in line else not_scored(line),
        "evidence_seconds": (line.get("extra_info") or {}).get("video_segment"),
        "row": {name: value for name, value in line.items() if name not in shown_elsewhere},
        "sequences": [_sequence(sequence) for sequence in line.get("sequences") or []],
    }


def _sequence(sequence: Mapping[str, Any]) -> dict[str, Any]:
    """A training sequence with repeated tokens of its context, such as those of an image, counted.

    A run is `[id, times, mask]`, mask 0 in the prompt; a sampled token is one for itself, followed by its
    log-probabilities in the rollout and in training, None where the record has none: held-out rollouts train nothing.
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
