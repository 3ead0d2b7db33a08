"""Frames as FrameThinker and VideoBrain show them: each after its number, one to a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_video_tools.core.templates import Template, render
from verl_video_tools.core.types import Content, ImagePart, Method

FRAME_TEMPLATES: Mapping[str, Template] = {
    "frame": Template("frame {index}: {image}", once=("index", "image")),
    "between_frames": Template("\n"),
}
"""Templates that a method's `message_templates` hold so that it can show `numbered_frames`."""


def numbered_frames(method: Method, images: Sequence[ImagePart]) -> Content:
    """The frames with their labels, and what stands between them; nothing before the first and after the last."""
    content: list[str | ImagePart] = []
    for position, image in enumerate(images):
        if position:
            content += render(method, "between_frames")
        content += render(method, "frame", index=str(image.record.index), image=(image,))
    return tuple(content)
