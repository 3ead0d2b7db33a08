"""Images as agent loops and inference servers know them, with their pixels and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import ImagePart
from verl_video_tools.loop_check.faults import GivenImage
from verl_video_tools.verl_plugin.sent_images import SentImages, image_name

Pixels = npt.NDArray[np.uint8]
"""Of shape (height, width, 3)."""


async def given_images(image_data: Sequence[Any] | None) -> list[tuple[GivenImage, Pixels]]:
    """The images of a request, one by one.

    Args:
        image_data: PIL images, as verl's loops send them, or references to images, as ours does.
    """
    found: list[tuple[GivenImage, Pixels]] = []
    for item in image_data or ():
        if isinstance(item, SentImages):
            arrays = await item.reference
            for number, name in enumerate(item.names, start=item.first):
                handle = SentImages(item.reference, number, (name,))
                found.append((GivenImage(handle, name, arrays[number].shape[:2]), arrays[number]))
        else:
            pixels_HWC = _pixels(item)
            found.append((GivenImage(item, image_name(pixels_HWC), pixels_HWC.shape[:2]), pixels_HWC))
    return found


def row_images(multi_modal_data: dict[str, Any] | None, image_parts: str) -> list[tuple[str, Pixels]]:
    """The images that a loop has handed over for training, with their names.

    Args:
        image_parts: entry that holds images as `ImagePart`, which our loop hands over to our worker.

    Raises:
        InvariantError: one is of no known kind.
    """
    data = multi_modal_data or {}
    images = [*data.get(image_parts, ()), *(data.get("images") or ())]
    return [(image_name(pixels_HWC), pixels_HWC) for pixels_HWC in map(_pixels, images)]


def _pixels(image: Any) -> Pixels:
    if isinstance(image, ImagePart):
        if image.pixels_HWC is None:
            raise InvariantError("an image without pixels was handed over for training")
        return image.pixels_HWC
    if not hasattr(image, "convert"):
        raise InvariantError(f"an image of type {type(image).__name__}; the taps know PIL images and those of our loop")
    return np.asarray(image.convert("RGB"))
