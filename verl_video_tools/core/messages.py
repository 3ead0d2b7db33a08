"""Messages of texts and images for the policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

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


def with_pixels(content: Content, images: Iterable[ImagePart]) -> Content:
    """Planned content with the decoded `images` of the same records."""
    decoded = {image.record: image for image in images}
    return tuple(part if isinstance(part, str) else decoded[part.record] for part in content)


def content_images(content: Content) -> list[ImagePart]:
    return [part for part in content if isinstance(part, ImagePart)]
