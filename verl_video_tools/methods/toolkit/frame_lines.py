"""Frames with their times, one to a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_video_tools.core.types import Content, ImagePart


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
