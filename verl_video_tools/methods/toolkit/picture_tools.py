"""A tool that shows a part of a frame at full size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import (
    Box,
    BoxUnit,
    FrameRequest,
    PixelBox,
    PixelEnvelope,
    Region,
    ShownFrame,
    ToolContext,
    ToolDescription,
    ToolPlan,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.calls import box_in_words, region_argument, time_argument
from verl_video_tools.methods.toolkit.frames import pixel_bounds
from verl_video_tools.video.resize import MAX_ASPECT_RATIO, fit_envelope

MIN_PICTURE_PIXELS = 1024
"""One cell of the largest factor of the supported models: a picture has at least so many pixels."""

_PARAMETERS = {
    "time": ("number", "Time of the frame in seconds, within the video."),
    "frame": (
        "integer",
        "Which of the pictures shown so far, counted from 0 over all of them in the order shown. The box is of that "
        "picture.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Zoom:
    """Shows a part of one frame, from the video's own pixels and not from a picture shown before.

    Attributes:
        frame_by: how a call names the frame. `time`: by `time`, in seconds. `frame`: by `frame`, the position of a
            picture among all that the model was shown, from 0; if that was a part of a frame, the box is of the part,
            unless it is in pixels, which are always the video's. `either`: by one of the two.
        unit: what the numbers of a box count. `thousandths` is how Qwen3-VL writes them by itself.
        max_pixels: area of the picture at most; a larger region is shrunk, keeping its shape.
        min_pixels: a smaller region is enlarged to this area, keeping its shape: the model sees larger letters, though
            no finer ones. 1 enlarges nothing beyond the model's own minimum.
        min_side_pixels: a region with a side of fewer pixels of the video is refused.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "zoom"

    frame_by: Literal["time", "frame", "either"] = "time"
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
        names = self._named_by()
        advice = " Give either time or frame." if len(names) > 1 else ""
        return ToolDescription(
            name=self.name,
            description=(
                "Look closer at a part of one frame: shows what is in a box, from the video at full resolution. "
                f"Use it for text and things too small to make out.{advice}"
            ),
            parameters={
                **{name: _PARAMETERS[name] for name in names},
                "box": ("array", box_in_words(self.unit)),
            },
            optional=names if len(names) > 1 else (),
        )

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """One picture for ``{"time": seconds, "box": [left, top, right, bottom]}``, or ``{"frame": position, ...}``.

        The result holds the box in whole pixels of the displayed frame, ``{"box": [...]}``.

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `unknown_frame`, `reversed_box`, `box_outside` or
                `box_too_small`.
        """
        named = self._named_frame(arguments, context)
        info = context.videos[named.video] if isinstance(named, ShownFrame) and context.videos else context.info
        part = named.region if isinstance(named, ShownFrame) and self.unit != "pixels" else None
        size = (info.width, info.height) if part is None else (part.width, part.height)
        region, pixels = region_argument(arguments, "box", size, self.unit, self.min_side_pixels)
        if part is not None:
            pixels = _within(pixels, part)
            region = Region(Box(*pixels))
        bounds = pixel_bounds(self.min_pixels, self.max_pixels, context.envelope)
        width, height = fit_envelope(pixels.width, pixels.height, bounds)
        if isinstance(named, ShownFrame):
            index = (named.index,)
            request = FrameRequest(width=width, height=height, indices=index, region=region, video=named.video)
        else:
            request = FrameRequest(width=width, height=height, seconds=(named,), region=region)
        return ToolPlan(frames=request, result={"box": list(pixels)})

    def most_expensive_call(self, info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest:
        """A picture that costs at least as many tokens as any call's."""
        bounds = pixel_bounds(self.min_pixels, self.max_pixels, envelope)
        columns, rows = _most_cells(bounds.max_pixels // bounds.factor**2)
        return FrameRequest(width=columns * bounds.factor, height=rows * bounds.factor, seconds=(0.0,))

    def _named_by(self) -> tuple[str, ...]:
        return ("time", "frame") if self.frame_by == "either" else (self.frame_by,)

    def _named_frame(self, arguments: Mapping[str, Any], context: ToolContext) -> ShownFrame | float:
        """The picture that a call names, or the time in seconds.

        Raises:
            CallRejected: see `plan`.
        """
        names = self._named_by()
        given = [name for name in names if arguments.get(name) is not None]  # some models write null for neither
        if len(names) > 1 and len(given) != 1:
            got = "both" if given else "neither"
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"give either time or frame, got {got}")
        if (given or names)[0] == "time":
            return time_argument(arguments, "time", context.info)
        position = arguments.get("frame")
        if isinstance(position, bool) or not isinstance(position, int):
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"frame must be a whole number, got {position!r:.80}")
        if not 0 <= position < len(context.shown):
            known = f"pictures run from 0 to {len(context.shown) - 1}" if context.shown else "none was shown"
            raise CallRejected(CallErrorCode.UNKNOWN_FRAME, f"there is no picture {position!s:.80}; {known}")
        return context.shown[position]


def _within(pixels: PixelBox, part: PixelBox) -> PixelBox:
    """Pixels of a part, as those of the frame."""
    return PixelBox(pixels.left + part.left, pixels.top + part.top, pixels.right + part.left, pixels.bottom + part.top)


def _most_cells(limit: int) -> tuple[int, int]:
    """Columns and rows of the largest grid of at most `limit` cells that a processor takes, the squarest of these."""
    grids = ((limit // rows, rows) for rows in range(math.isqrt(limit), 0, -1))
    return max((grid for grid in grids if grid[0] <= MAX_ASPECT_RATIO * grid[1]), key=lambda grid: grid[0] * grid[1])
