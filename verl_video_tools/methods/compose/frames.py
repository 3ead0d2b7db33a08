"""Plans of the frames shown with the question: how many, which, and at what size. A new plan is one entry of `PLANS`.

A plan is a dataclass whose fields are the keys of `initial_frames`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind.method import FrameMind, Rung
from verl_video_tools.methods.longvt.crop_video import nearest_frames, video_seconds
from verl_video_tools.methods.toolkit.frame_size import rate_frames
from verl_video_tools.video.resize import fit_box, fit_pixels

_MODULE = "verl_video_tools.methods.compose.frames"

PLANS = {
    "none": f"{_MODULE}:NoFrames",
    "uniform": f"{_MODULE}:Uniform",
    "rate": f"{_MODULE}:Rate",
    "even_rate": f"{_MODULE}:EvenRate",
    "ladder": f"{_MODULE}:Ladder",
}
"""Python paths of plans by name."""


@dataclass(frozen=True, kw_only=True)
class FramePlan(ABC):
    """What is shown with the question."""

    @abstractmethod
    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        """The frames of a video.

        Args:
            rung: the rollout's place on a ladder, from 1; None for validation, and where there is no ladder.
            num_rungs: rungs of the ladder.
        """


@dataclass(frozen=True, kw_only=True)
class NoFrames(FramePlan):
    """Nothing: the question comes alone, and tools show what there is to see. For evaluation only."""

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        return vt.FrameRequest(width=1, height=1, indices=())


@dataclass(frozen=True, kw_only=True)
class SizedPlan(FramePlan):
    """Frames of a size that one of three rules gives.

    Attributes:
        box: width and height in pixels that frames are shrunk to fit.
        max_pixels: area in pixels that frames are shrunk to.
        min_pixels: beside max_pixels: frames are also enlarged to this area, and sides are multiples of the model's
            factor.
    """

    box: tuple[int, int] | None = None
    max_pixels: int | None = None
    min_pixels: int | None = None

    def __post_init__(self) -> None:
        vt.require(self, "box", (self.box is None) != (self.max_pixels is None), "given, or else max_pixels, not both")
        vt.require(self, "box", self.box is None or min(self.box) >= 1, "two sides of at least 1 pixel")
        vt.require(self, "max_pixels", self.max_pixels is None or self.max_pixels >= 1, "at least 1")
        least = self.min_pixels
        vt.require(
            self,
            "min_pixels",
            least is None or (self.max_pixels is not None and 1 <= least <= self.max_pixels),
            "from 1 to max_pixels, and beside it",
        )

    def size(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int]:
        """Width and height in pixels."""
        if self.box is not None:
            return fit_box(info.width, info.height, *self.box, envelope)
        assert self.max_pixels is not None  # __post_init__
        if self.min_pixels is not None:
            return vt.frame_size(info, self.min_pixels, self.max_pixels, envelope)
        return fit_pixels(info.width, info.height, self.max_pixels, envelope)


@dataclass(frozen=True, kw_only=True)
class Uniform(SizedPlan):
    """Frames spread evenly from the first of the video to the last.

    Attributes:
        num_frames: how many; all of a shorter video.
    """

    num_frames: int

    def __post_init__(self) -> None:
        super().__post_init__()
        vt.require(self, "num_frames", self.num_frames >= 1, "at least 1; the plan `none` shows none")

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        return vt.spread_frames(info, self.num_frames, self.size(info, envelope))


@dataclass(frozen=True, kw_only=True)
class Rate(SizedPlan):
    """Frames at a rate, from the first of the video on.

    Attributes:
        fps: frames per second.
        max_frames: where the rate gives more, so many are spread evenly from the first to the last.
    """

    fps: float
    max_frames: int

    def __post_init__(self) -> None:
        super().__post_init__()
        vt.require(self, "fps", self.fps > 0, "above 0")
        vt.require(self, "max_frames", self.max_frames >= 2, "at least 2")

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        return rate_frames(info, self.fps, self.max_frames, self.size(info, envelope))


@dataclass(frozen=True, kw_only=True)
class EvenRate(Rate):
    """As Qwen's models sample a video: an even number of frames, `fps` a second and at most `max_frames`, spread evenly
    with the first and the last of the video among them."""

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        return nearest_frames(video_seconds(info, self.fps, self.max_frames), self.size(info, envelope))


@dataclass(frozen=True, kw_only=True)
class Ladder(FramePlan):
    """FrameMind's ladder: the rollouts of a group see from many small frames to few large ones.

    Attributes:
        low, high: first and last rung: number of frames, and side in pixels of the square that each is scaled to.
        validation_frames: frames in validation; null: as many as the first rung has.
        frame_rounding: how a rung's number of frames becomes whole.
        nested_times: every rung takes its frames from those of the rung with most frames.
        resize: `square` stretches frames to the square, `area` keeps their aspect ratio.
    """

    low: Rung = (64, 224)
    high: Rung = (32, 448)
    validation_frames: int | None = None
    frame_rounding: Literal["nearest", "floor", "ceil"] = "nearest"
    nested_times: bool = False
    resize: Literal["square", "area"] = "square"

    def __post_init__(self) -> None:
        self._method(None, 1)  # checks the fields

    def _method(self, rung: int | None, num_rungs: int) -> FrameMind:
        return FrameMind(
            low=self.low,
            high=self.high,
            initial_frames=self.validation_frames,
            frame_rounding=self.frame_rounding,
            nested_times=self.nested_times,
            resize=self.resize,
            rung=rung,
            num_rungs=num_rungs,
        )

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        return self._method(rung, num_rungs).plan_initial_frames(info, vt.Sample("", "", "", "mc"), envelope)
