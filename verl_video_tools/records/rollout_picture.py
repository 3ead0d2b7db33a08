"""A recorded rollout as one picture for trackers: question, frames of each call with their times, answer and reward."""

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
_FRAMES_PER_ROW = 8
"""Of more frames, so many are drawn, evenly spread."""
_MARGIN, _LINE, _GAP, _CELL = 12, 17, 8, 118
_CHARACTERS_PER_LINE = 140
_MAX_LINES = 4
"""Of a question or a turn."""
_MAX_THUMBNAILS = 256
_GREY, _CALL, _REFUSED = "#555555", "#0072b2", "#b00020"

Thumbnail = tuple[FrameRecord, bytes]
"""A frame and its JPEG file."""


def rollout_picture(line: Mapping[str, Any]) -> Image.Image:
    """Draw a recorded line as an RGB picture that is `WIDTH` pixels wide. The frames are decoded again; if the video
    cannot be read, the picture says why.

    Args:
        line: as `records.read_records` gives it, with a `Trajectory`.
    """
    trajectory: Trajectory = line["trajectory"]
    path = video_path(line) or ""
    thumbnails = decode_thumbnails(
        [(path, trajectory)] if path and trajectory.visuals == "video" else [], max_thumbnails=_MAX_THUMBNAILS
    )
    page = _Page()
    page.text(f"step {line['step']}, {trajectory.method}: {trajectory.question}")
    page.text(outcome(line), _GREY)
    page.text(f"initial frames ({len(trajectory.initial_frames)})", _GREY)
    page.frames(list(thumbnails.of_frames(path, trajectory.initial_frames)))
    for number, turn in enumerate(trajectory.turns, start=1):
        page.text(f"turn {number}: {turn.thought or turn.text}")
        for call in turn.calls:
            page.text(call_line(call), _CALL if call.ok else _REFUSED)
            page.frames(list(thumbnails.of_frames(path, call.frames)))
    page.text(f"answer: {trajectory.answer}")
    for note in thumbnails.notes.values():
        page.text(f"no frames: {note}", _REFUSED)
    return page.picture()


def outcome(line: Mapping[str, Any]) -> str:
    """Truth, answer, stop reason, and the reward with its parts, as one line of text."""
    trajectory: Trajectory = line["trajectory"]
    reward = {name: value for name, value in line["reward"].items() if isinstance(value, int | float) and value}
    parts = ", ".join(f"{name} {value:.3g}" for name, value in reward.items() if name != "score")
    flags = f"; flagged: {', '.join(trajectory.flags)}" if trajectory.flags else ""
    return (
        f"truth {line['ground_truth']!r}, answer {trajectory.answer!r}, ended by {trajectory.stop_reason}; "
        f"reward {line['reward'].get('score', 0.0):.3g} ({parts or 'nothing'}){flags}"
    )


def call_line(call: CallRecord) -> str:
    """A call with its arguments and its result."""
    result = f"{len(call.frames)} frame{'s' * (len(call.frames) != 1)}" if call.ok else f"refused: {call.error}"
    return f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}: {call.text if call.text else result}"


class _Page:
    """Collects texts and pictures from top to bottom, and draws them when the height is known."""

    def __init__(self) -> None:
        self._font = ImageFont.load_default(13)
        self._height = _MARGIN
        self._parts: list[tuple[int, int, str | Image.Image, str]] = []

    def text(self, text: str, colour: str = "black") -> None:
        lines = [
            line for part in text.splitlines() or [""] for line in textwrap.wrap(part, _CHARACTERS_PER_LINE) or [""]
        ]
        if len(lines) > _MAX_LINES:
            lines = [*lines[: _MAX_LINES - 1], lines[_MAX_LINES - 1][: _CHARACTERS_PER_LINE - 4] + " ..."]
        for line in lines:
            self._parts.append((_MARGIN, self._height, line, colour))
            self._height += _LINE

    def frames(self, thumbnails: Sequence[Thumbnail]) -> None:
        if not thumbnails:
            return
        cells = list(_cells(thumbnails))
        for column, (frame, picture) in enumerate(cells):
            x = _MARGIN + column * (_CELL + 4)
            label = f"{frame.timestamp_seconds:.1f} s"
            self._parts.append((x, self._height, picture, ""))
            self._parts.append((x, self._height + picture.height + 1, label, _GREY))
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


def _cells(thumbnails: Sequence[Thumbnail]) -> Iterator[tuple[FrameRecord, Image.Image]]:
    """The frames of one row, with their pictures at the size of a cell."""
    for position in linspace_indices(0, len(thumbnails) - 1, min(len(thumbnails), _FRAMES_PER_ROW)):
        frame, jpeg = thumbnails[position]
        picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
        scale = _CELL / max(picture.size)
        if scale >= 2:  # a small part of a frame
            size = (int(picture.width * scale), int(picture.height * scale))
            picture = picture.resize(size, Image.Resampling.NEAREST)
        picture.thumbnail((_CELL, _CELL))
        yield frame, picture
