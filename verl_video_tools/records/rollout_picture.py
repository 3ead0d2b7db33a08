"""A recorded rollout as one picture, for trackers: question, what each call showed and when, answer and reward."""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from verl_video_tools.core.types import CallRecord, FrameRecord, Trajectory
from verl_video_tools.records.thumbnails import decode_thumbnails
from verl_video_tools.records.view import video_path
from verl_video_tools.video import linspace_indices

WIDTH = 1000
FRAMES_PER_LOOK = 8
"""Of more frames of a look so many are drawn, evenly spread."""
_MARGIN, _LINE, _GAP, _CELL = 12, 17, 8, 118
_CHARACTERS = 140
_MOST_LINES = 4
"""Of a question or a turn."""
_MOST_THUMBNAILS = 256
Shown = tuple[FrameRecord, bytes]
"""A frame and its JPEG file."""
_CALL, _REFUSED = "#0072b2", "#b00020"


def rollout_picture(line: Mapping[str, Any]) -> Image.Image:
    """The picture of a line of records, RGB, `WIDTH` pixels wide. Frames are decoded again; those of a video that
    cannot be read are left out, and the picture says why.

    Args:
        line: as `records.read_records` gives it: `trajectory` is a `Trajectory`.
    """
    trajectory: Trajectory = line["trajectory"]
    path = video_path(line)
    looks = [(path, trajectory)] if path is not None and trajectory.visuals == "video" else []
    thumbnails = decode_thumbnails(looks, max_thumbnails=_MOST_THUMBNAILS)
    page = _Page()
    page.text(f"step {line['step']}, {trajectory.method}: {trajectory.question}")
    page.text(outcome(line), "#555555")
    page.text(f"initial frames ({len(trajectory.initial_frames)})", "#555555")
    page.frames(list(thumbnails.shown(path or "", trajectory.initial_frames)))
    for number, turn in enumerate(trajectory.turns, start=1):
        page.text(f"turn {number}: {turn.thought or turn.text}")
        for call in turn.calls:
            page.text(call_line(call), _CALL if call.ok else _REFUSED)
            page.frames(list(thumbnails.shown(path or "", call.frames)))
    page.text(f"answer: {trajectory.answer}")
    for note in thumbnails.notes.values():
        page.text(f"no frames: {note}", _REFUSED)
    return page.picture()


def outcome(line: Mapping[str, Any]) -> str:
    """Truth, answer, stop reason and the reward by its parts, as one line of text."""
    trajectory: Trajectory = line["trajectory"]
    reward = {name: value for name, value in line["reward"].items() if isinstance(value, int | float) and value}
    parts = ", ".join(f"{name} {value:.3g}" for name, value in reward.items() if name != "score")
    flags = f"; flagged: {', '.join(trajectory.flags)}" if trajectory.flags else ""
    return (
        f"truth {line['ground_truth']!r}, answer {trajectory.answer!r}, ended by {trajectory.stop_reason}; "
        f"reward {line['reward'].get('score', 0.0):.3g} ({parts or 'nothing'}){flags}"
    )


def call_line(call: CallRecord) -> str:
    """A call with its arguments, and what came of it."""
    came = f"{len(call.frames)} frame{'s' * (len(call.frames) != 1)}" if call.ok else f"refused: {call.error}"
    return f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}: {call.text if call.text else came}"


class _Page:
    """Grows downwards: what is drawn is kept until its height is known."""

    def __init__(self) -> None:
        self._font = ImageFont.load_default(13)
        self._height = _MARGIN
        self._parts: list[tuple[int, int, str | Image.Image, str]] = []

    def text(self, text: str, colour: str = "black") -> None:
        lines = [line for part in text.splitlines() or [""] for line in textwrap.wrap(part, _CHARACTERS) or [""]]
        if len(lines) > _MOST_LINES:
            lines = [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][: _CHARACTERS - 4] + " ..."]
        for line in lines:
            self._parts.append((_MARGIN, self._height, line, colour))
            self._height += _LINE

    def frames(self, shown: Sequence[Shown]) -> None:
        cells = list(_cells(shown))
        for column, (frame, picture) in enumerate(cells):
            x = _MARGIN + column * (_CELL + 4)
            self._parts.append((x, self._height, picture, ""))
            label = f"{frame.timestamp_seconds:.1f} s"
            self._parts.append((x, self._height + picture.height + 1, label, "#555555"))
        if cells:
            self._height += max(picture.height for _, picture in cells) + _LINE + _GAP

    def picture(self) -> Image.Image:
        page = Image.new("RGB", (WIDTH, self._height + _MARGIN), "white")
        draw = ImageDraw.Draw(page)
        for x, y, content, colour in self._parts:
            if isinstance(content, str):
                draw.text((x, y), content, fill=colour, font=self._font)
            else:
                page.paste(content, (x, y))
        return page


def _cells(shown: Sequence[Shown]) -> Iterator[tuple[FrameRecord, Image.Image]]:
    """So many as a row has, evenly spread."""
    for position in linspace_indices(0, len(shown) - 1, min(len(shown), FRAMES_PER_LOOK)) if shown else ():
        frame, jpeg = shown[position]
        picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
        scale = _CELL / max(picture.size)
        if scale >= 2:  # a small part of a frame
            picture = picture.resize(
                (int(picture.width * scale), int(picture.height * scale)), Image.Resampling.NEAREST
            )
        picture.thumbnail((_CELL, _CELL))
        yield frame, picture
