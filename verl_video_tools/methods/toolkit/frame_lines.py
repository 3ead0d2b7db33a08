"""Frames with their labels, one to a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verl_video_tools.core.templates import Template, render
from verl_video_tools.core.types import Content, ImagePart, Method

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
