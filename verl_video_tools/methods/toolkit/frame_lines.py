"""How frames stand in a message: with their labels, one to a line, and after the words that a tool answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verl_video_tools.core.prompts import Template, render
from verl_video_tools.core.types import BoxUnit, Content, FrameRecord, ImagePart, Method, ToolOutcome, VideoInfo
from verl_video_tools.methods.toolkit.calls import format_box

FRAME_TEMPLATES: Mapping[str, Template] = {
    "frame": Template("frame {index}: {image}", once=("index", "image")),
    "between_frames": Template("\n"),
}
"""Templates that a method's `message_templates` hold so that it can show `numbered_frames`."""


def frame_lines(images: Sequence[ImagePart], label: Callable[[float], str]) -> Content:
    """Each frame after its label, on a line of its own.

    Args:
        label: text of a label, by the frame's time in seconds.
    """
    content: list[str | ImagePart] = []
    for number, image in enumerate(images):
        line_break = "\n" if number > 0 else ""
        content += [f"{line_break}{label(image.record.timestamp_seconds)}", image]
    return tuple(content)


def numbered_frames(method: Method, images: Sequence[ImagePart]) -> Content:
    """The frames, each after its number, and what stands between them; nothing before the first and after the last."""
    content: list[str | ImagePart] = []
    for position, image in enumerate(images):
        if position:
            content += render(method, "between_frames")
        content += render(method, "frame", index=str(image.record.index), image=(image,))
    return tuple(content)


def picture_label(record: FrameRecord, info: VideoInfo, unit: BoxUnit = "pixels") -> str:
    """``12.00 s``; ``12.00 s, part [0.25, 0, 0.5, 1]``; or ``row by row: 1.00 s, 2.00 s, 3.00 s, 4.00 s``.

    Args:
        unit: of the box, the one that the model is asked to write boxes in.
    """
    times = [f"{tile.timestamp_seconds:.2f} s" for tile in record.tiles] or [f"{record.timestamp_seconds:.2f} s"]
    label = f"row by row: {', '.join(times)}" if record.tiles else times[0]
    if record.region is not None:
        label += f", part {format_box(record.region.in_unit(unit, info.width, info.height))}"
    return label


def with_text(outcome: ToolOutcome, frames: Content) -> Content:
    """The words of a call, then its frames as the method labels them; of a call without words its frames as they are.

    A method's `observe` passes what it shows of a call through here, so that it can show any tool's answer.
    """
    text = outcome.record.text
    if text is None:
        return frames
    return (f"{text}\n", *frames) if frames else (text,)
