"""Images as bytes of an image file, to be sent to a model, and the names of their pixels."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import numpy.typing as npt
from PIL import Image


def image_name(pixels_HWC: npt.NDArray[np.uint8]) -> str:
    """A hash of an image's size and pixels."""
    digest = hashlib.blake2b(repr(pixels_HWC.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels_HWC).data)
    return digest.hexdigest()


def encode_image(pixels_HWC: npt.NDArray[np.uint8], jpeg_quality: int | None = None) -> tuple[str, bytes]:
    """One image as the bytes of a file, and its kind: `png` or `jpeg`.

    Args:
        jpeg_quality: 1 to 95; None makes a PNG, which is lossless.
    """
    buffer = io.BytesIO()
    if jpeg_quality is None:
        # Weakly compressed: these images travel once, and encoding them competes with decoding videos.
        Image.fromarray(pixels_HWC).save(buffer, "PNG", compress_level=1)
        return "png", buffer.getvalue()
    Image.fromarray(pixels_HWC).save(buffer, "JPEG", quality=jpeg_quality, subsampling=0)
    return "jpeg", buffer.getvalue()
