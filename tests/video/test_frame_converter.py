"""Pixels are those of libswscale's own conversion to RGB, whatever the coding of colours."""

from __future__ import annotations

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from tests.videos.files import draw_number
from verl_video_tools.video.frame_converter import ENLARGE, SHRINK, FrameConverter

FORMATS = ("yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuv420p10le", "nv12", "gray", "rgb24", "gbrp")
SIZES = ((48, 32), (96, 64), (120, 90))
COLOR_RANGES = (ColorRange.MPEG, ColorRange.JPEG, None)
COLORSPACES = (Colorspace.ITU709, Colorspace.ITU601, None)


@pytest.mark.parametrize("number", range(len(FORMATS)), ids=FORMATS)
def test_same_pixels_as_in_one_step(number: int) -> None:
    """Of any two of format, size, range and colour space, each value meets each of the other."""
    for place, (width, height) in enumerate(SIZES):
        colorspace, color_range = COLORSPACES[(number + 2 * place) % 3], COLOR_RANGES[(number + place) % 3]
        frame = av.VideoFrame.from_ndarray(draw_number(1234), format="rgb24").reformat(format=FORMATS[number])
        if colorspace is not None:
            frame.colorspace = colorspace
        if color_range is not None:
            frame.color_range = color_range
        interpolation = SHRINK if width < 96 else ENLARGE
        expected = VideoReformatter().reformat(frame, width, height, "rgb24", interpolation=interpolation, threads=1)
        picture = FrameConverter().convert(frame, width, height)
        assert picture.shape == (height, width, 3)
        difference = np.abs(picture.astype(int) - expected.to_ndarray().astype(int))
        assert difference.max() <= 2 and difference.mean() < 0.5, (width, colorspace, color_range)
