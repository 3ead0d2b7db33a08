"""Several frames of a span in one picture: an overview at the price of one image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import (
    FrameRequest,
    PixelEnvelope,
    ToolContext,
    ToolDescription,
    ToolPlan,
    VideoInfo,
)
from verl_video_tools.methods.toolkit.calls import time_argument
from verl_video_tools.methods.toolkit.frames import pixel_bounds
from verl_video_tools.methods.toolkit.zoom import MIN_PICTURE_PIXELS
from verl_video_tools.video.resize import MAX_ASPECT_RATIO, fit_envelope
from verl_video_tools.video.sampling import linspace_indices


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Shows frames spread evenly from one time to another, both ends included, row by row in one picture.

    A span with fewer frames than asked for shows those that it has. The picture's record tells the time of each frame
    (`tiles`), and `picture_label` puts them into words. Each frame fills whole patches of the model, so that none holds
    pixels of two frames.

    Attributes:
        columns: frames of a row.
        max_frames: frames of one picture at most, and of one that does not name a number.
        max_pixels: area of the whole picture at most; no frame is enlarged, but to the model's minimum.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "grid"

    columns: int = 3
    max_frames: int = 9
    max_pixels: int = 602_112

    def __post_init__(self) -> None:
        require(self, "columns", self.columns >= 1, "at least 1")
        require(self, "max_frames", self.max_frames >= 1, "at least 1")
        least = MIN_PICTURE_PIXELS * self.columns * math.ceil(self.max_frames / self.columns)
        require(self, "max_pixels", self.max_pixels >= least, f"at least {least} with so many frames and columns")

    @property
    def description(self) -> ToolDescription:
        """How the tool is offered to a model."""
        return ToolDescription(
            name=self.name,
            description=(
                f"Skim a part of the video: shows up to {self.max_frames} frames spread evenly over it, small, in one "
                "picture, row by row, and tells their times."
            ),
            parameters={
                "start_time": ("number", "Where the part starts, in seconds."),
                "end_time": ("number", "Where the part ends, in seconds; at most the length of the video."),
                "num_frames": ("integer", f"How many frames to show, 1 to {self.max_frames}; that many if left out."),
            },
            optional=("num_frames",),
        )

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """One picture for ``{"start_time": seconds, "end_time": seconds, "num_frames": int}``, the last optional.

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `reversed_segment` or `too_many_frames`.
            VideoError: the file cannot be asked which frames are shown when.
        """
        info = context.info
        start, end = (time_argument(arguments, name, info) for name in ("start_time", "end_time"))
        if end < start:
            raise CallRejected(
                CallErrorCode.REVERSED_SEGMENT, f"the part ends at {end:g} s, before its start at {start:g} s"
            )
        count = self._count(arguments)
        first, last = await context.index_at(start), await context.index_at(end)
        return ToolPlan(frames=self._request(linspace_indices(first, last, count), info, context.envelope))

    def most_expensive_call(self, info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest:
        """A picture that costs at least as many tokens as any call's."""
        largest = self._request((0,), info, envelope)
        for count in range(2, min(self.max_frames, info.num_frames) + 1):
            with suppress(CallRejected):  # the model takes no picture of so many
                request = self._request(tuple(range(count)), info, envelope)
                largest = max(largest, request, key=lambda each: each.width * each.height)
        return largest

    def _count(self, arguments: Mapping[str, Any]) -> int:
        count = arguments.get("num_frames")
        if count is None:  # or left out: some models write null
            return self.max_frames
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"num_frames must be 1 or more, got {count!r:.80}")
        if count > self.max_frames:
            raise CallRejected(
                CallErrorCode.TOO_MANY_FRAMES,
                f"{count!s:.80} frames are too many; a grid shows at most {self.max_frames}",
            )
        return count

    def _request(self, indices: tuple[int, ...], info: VideoInfo, envelope: PixelEnvelope) -> FrameRequest:
        columns = min(self.columns, len(indices))
        rows = math.ceil(len(indices) / columns)
        cells = columns * rows
        whole = pixel_bounds(1, self.max_pixels, envelope)
        share = PixelEnvelope(whole.factor, math.ceil(whole.min_pixels / cells), whole.max_pixels // cells)
        try:
            width, height = fit_envelope(info.width, info.height, share)
        except ValueError as error:
            raise self._too_many(len(indices), whole) from error
        width, height = width * columns, height * rows
        if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
            raise self._too_many(len(indices), whole)
        return FrameRequest(width=width, height=height, indices=indices, grid=(columns, rows))

    @staticmethod
    def _too_many(count: int, whole: PixelEnvelope) -> CallRejected:
        return CallRejected(
            CallErrorCode.TOO_MANY_FRAMES,
            f"{count} frames fit into no picture of {whole.min_pixels} to {whole.max_pixels} pixels that the model "
            "takes; ask for fewer",
        )
