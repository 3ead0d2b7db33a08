"""A part of one frame, cut out of the video at full size: for what is too small to read in the frames shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.core.config import require
from verl_video_tools.core.types import (
    BoxUnit,
    FrameRequest,
    PixelEnvelope,
    ToolContext,
    ToolDescription,
    ToolPlan,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.arguments import time_argument
from verl_video_tools.methods.toolkit.box_argument import box_in_words, region_argument
from verl_video_tools.methods.toolkit.frame_size import pixel_bounds
from verl_video_tools.video.resize import MAX_ASPECT_RATIO, fit_envelope

MIN_PICTURE_PIXELS = 1024
"""One cell of the largest factor of the supported models: a picture has at least so many pixels."""


@dataclass(frozen=True, kw_only=True)
class Zoom:
    """Shows what is in a box of the frame at a time, from the video's own pixels and not from a picture shown before.

    Attributes:
        unit: what the numbers of a box count. `thousandths` is how Qwen3-VL writes boxes by itself.
        max_pixels: area of the picture at most; a larger region is shrunk, keeping its shape.
        min_pixels: a smaller region is enlarged to this area, keeping its shape: the model sees larger letters, though
            no finer ones. 1 enlarges nothing beyond the model's own minimum.
        min_side_pixels: a region with a side of fewer pixels of the video is refused.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "zoom"

    unit: BoxUnit = "normalised"
    max_pixels: int = 200_704
    min_pixels: int = 50_176
    min_side_pixels: int = 28

    def __post_init__(self) -> None:
        require(self, "max_pixels", self.max_pixels >= MIN_PICTURE_PIXELS, f"at least {MIN_PICTURE_PIXELS}")
        require(self, "min_pixels", 1 <= self.min_pixels <= self.max_pixels, f"from 1 to max_pixels, {self.max_pixels}")
        require(self, "min_side_pixels", self.min_side_pixels >= 1, "at least 1")

    @property
    def description(self) -> ToolDescription:
        """How the tool is offered to a model."""
        return ToolDescription(
            name=self.name,
            description=(
                "Look closer at a part of one frame: shows what is in a box, from the video at full resolution. Use it "
                "for text and things too small to make out."
            ),
            parameters={
                "time": ("number", "Time of the frame in seconds, within the video."),
                "box": ("array", box_in_words(self.unit)),
            },
        )

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """One picture for ``{"time": seconds, "box": [left, top, right, bottom]}``.

        The result holds the box in whole pixels of the displayed frame, ``{"box": [...]}``.

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `reversed_box`, `box_outside` or `box_too_small`.
        """
        info = context.info
        seconds = time_argument(arguments, "time", info)
        size = info.width, info.height
        region, pixels = region_argument(arguments, "box", size, self.unit, self.min_side_pixels)
        bounds = pixel_bounds(self.min_pixels, self.max_pixels, context.envelope)
        width, height = fit_envelope(pixels.width, pixels.height, bounds)
        request = FrameRequest(width=width, height=height, seconds=(seconds,), region=region)
        return ToolPlan(frames=request, result={"box": list(pixels)})

    def dearest(self, info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest:
        """A picture that costs at least as many tokens as any call's: what `Method.max_cost_call` returns."""
        bounds = pixel_bounds(self.min_pixels, self.max_pixels, envelope)
        columns, rows = _most_cells(bounds.max_pixels // bounds.factor**2)
        return FrameRequest(width=columns * bounds.factor, height=rows * bounds.factor, seconds=(0.0,))


def _most_cells(limit: int) -> tuple[int, int]:
    """Columns and rows of the largest grid of at most `limit` cells that a processor takes, the squarest of these."""
    grids = ((limit // rows, rows) for rows in range(math.isqrt(limit), 0, -1))
    return max((grid for grid in grids if grid[0] <= MAX_ASPECT_RATIO * grid[1]), key=lambda grid: grid[0] * grid[1])
