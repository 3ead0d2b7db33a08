"""Image files, and pictures of tools, as images of a prompt: upright, on white, at a size that the model's processor
leaves alone."""

from __future__ import annotations

import base64
import os

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.image_files import encode_image, image_name
from verl_video_tools.core.types import FrameRecord, ImagePart, PixelEnvelope, ToolPicture
from verl_video_tools.video.resize import fit_envelope

BACKGROUND = (255, 255, 255)
"""RGB behind transparent pixels, as qwen-vl-utils has it."""

UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises on a file that is no image, or a damaged one."""
_ORIENTATION = 0x0112
_ON_ITS_SIDE = frozenset({5, 6, 7, 8})
"""Values of that EXIF tag with which width and height change places."""


def upright_picture(path: str | os.PathLike[str], max_pixels: int | None = None) -> Image.Image:
    """An image file as RGB, rotated by EXIF, on white, at its own size.

    Args:
        max_pixels: a larger image is refused before it is decoded.

    Raises:
        UNREADABLE: it cannot be read.
    """
    with Image.open(path) as file:
        if max_pixels is not None and file.width * file.height > max_pixels:
            raise ValueError(f"{file.width}x{file.height} is larger than the {max_pixels} pixels that are read")
        upright = ImageOps.exif_transpose(file)
        if upright.has_transparency_data:
            shown = Image.new("RGBA", upright.size, BACKGROUND)
            shown.alpha_composite(upright.convert("RGBA"))
            upright = shown
        return upright.convert("RGB")


def planned_picture(path: str, number: int, envelope: PixelEnvelope) -> ImagePart:
    """What `read_picture` gives, without pixels: the file's header alone is read.

    Raises:
        RowError: it cannot be read.
    """
    if not os.path.isfile(path):  # a pipe would be waited on for ever
        raise RowError(f"cannot read the image {path}: there is no such file")
    try:
        with Image.open(path) as file:
            width, height = file.size
            if file.getexif().get(_ORIENTATION) in _ON_ITS_SIDE:
                width, height = height, width
    except UNREADABLE as error:
        raise RowError(f"cannot read the image {path}: {error}") from error
    return ImagePart(FrameRecord(number, 0.0, *fit_envelope(width, height, envelope)))


def read_picture(path: str, number: int, envelope: PixelEnvelope) -> ImagePart:
    """An image file as RGB, upright, scaled to the nearest size within the envelope.

    Args:
        number: the index in its record; the time of a picture is 0.

    Raises:
        RowError: it cannot be read.
    """
    try:
        picture = upright_picture(path)
    except UNREADABLE as error:
        raise RowError(f"cannot read the image {path}: {error}") from error
    pixels_HWC = _fitted(picture, envelope)
    height, width = pixels_HWC.shape[:2]
    return ImagePart(FrameRecord(number, 0.0, width, height), pixels_HWC)


def made_picture(pixels_HWC: npt.NDArray[np.uint8], envelope: PixelEnvelope) -> tuple[ImagePart, ToolPicture]:
    """A picture that a tool has made, scaled to the nearest size within the envelope, and its record.

    Raises:
        UsageError: it is not RGB in 8 bits.
    """
    is_array = isinstance(pixels_HWC, np.ndarray)
    if not is_array or pixels_HWC.dtype != np.uint8 or pixels_HWC.shape[2:] != (3,) or not pixels_HWC.size:
        got = f"{pixels_HWC.dtype} {pixels_HWC.shape}" if is_array else type(pixels_HWC).__name__
        raise UsageError(f"ToolPlan.pictures holds arrays of uint8 (height, width, 3), got {got}")
    digest, shown_HWC = image_name(pixels_HWC), _fitted(Image.fromarray(pixels_HWC), envelope)
    height, width = shown_HWC.shape[:2]
    _, png = encode_image(shown_HWC)
    record = ToolPicture(digest, width, height, base64.b64encode(png).decode())
    return ImagePart(FrameRecord(-1, 0.0, width, height, digest=digest), shown_HWC), record


def _fitted(picture: Image.Image, envelope: PixelEnvelope) -> npt.NDArray[np.uint8]:
    """Pixels of a picture at the nearest size within the envelope."""
    size = fit_envelope(picture.width, picture.height, envelope)
    return np.asarray(picture if size == picture.size else picture.resize(size, Image.Resampling.BICUBIC))
