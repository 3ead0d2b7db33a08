"""Messages of texts and images for the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.frames import FrameRecord

IMAGE_MARK = "<image>"
"""Stands for an image in the text of a message."""


@dataclass(frozen=True)
class ImagePart:
    """One image in a message. `pixels_HWC` is None until it is decoded."""

    record: FrameRecord
    pixels_HWC: npt.NDArray[np.uint8] | None = field(default=None, repr=False)


Content = tuple["str | ImagePart", ...]
"""Text and images in reading order."""


@dataclass(frozen=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: Content


def content_text(content: Content) -> str:
    """Content as one string, with `IMAGE_MARK` for each image."""
    return "".join(part if isinstance(part, str) else IMAGE_MARK for part in content)


def with_pixels(content: Content, images: Sequence[ImagePart]) -> Content:
    """Planned content with the decoded `images` of the same records.

    Raises:
        UsageError: it shows another image, or other pixels.
    """
    decoded = {image.record: image for image in images}
    arrays = {id(image.pixels_HWC) for image in images}  # a frame that was requested twice has two
    for part in content_images(content):
        if part.record not in decoded or (part.pixels_HWC is not None and id(part.pixels_HWC) not in arrays):
            raise UsageError(
                f"a message shows an image that is none of its frames, or pixels that are not theirs, got {part}; only "
                "a tool brings pictures of its own, in ToolPlan.pictures"
            )
    return tuple(part if isinstance(part, str) else decoded[part.record] for part in content)


def content_images(content: Content) -> list[ImagePart]:
    return [part for part in content if isinstance(part, ImagePart)]
