"""What one call may cost the server and its reader."""

from __future__ import annotations

from dataclasses import dataclass

from verl_video_tools.core.config import require
from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.video import fit_pixels


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """Bounds of one call.

    Raises:
        UsageError: a value outside its range.
    """

    max_frames: int = 32
    """Frames shown at most."""
    max_pixels: int = 8_000_000
    """Area of all frames together at most."""
    deadline_seconds: float = 30.0
    """Time to open a video, to search it, and to decode its frames, each."""

    def __post_init__(self) -> None:
        require(self, "max_frames", self.max_frames >= 1, "at least 1")
        require(self, "max_pixels", self.max_pixels >= 1, "at least 1")
        require(self, "deadline_seconds", self.deadline_seconds > 0, "above 0")

    def check_count(self, num_frames: int) -> None:
        """Raise CallRejected (`too_many_frames`) unless 1 <= num_frames <= max_frames."""
        if not 1 <= num_frames <= self.max_frames:
            raise CallRejected(
                CallErrorCode.TOO_MANY_FRAMES if num_frames > 0 else CallErrorCode.MALFORMED_CALL,
                f"a call shows 1 to {self.max_frames} frames, and this one asks for {num_frames}",
            )

    def frame_size(self, own_size: tuple[int, int], num_frames: int, frame_pixels: int) -> tuple[int, int]:
        """Width and height of each of `num_frames` frames, or parts, of at most `frame_pixels`, never enlarged.

        Args:
            own_size: width and height in the video.

        Raises:
            CallRejected: `image_budget` where their area is above `max_pixels`; `malformed_call` for no pixels at all.
        """
        if frame_pixels < 1:
            raise CallRejected(CallErrorCode.MALFORMED_CALL, f"frame_pixels must be at least 1, got {frame_pixels}")
        width, height = fit_pixels(*own_size, frame_pixels)
        if num_frames * width * height > self.max_pixels:
            raise CallRejected(
                CallErrorCode.IMAGE_BUDGET,
                f"{num_frames} frames of {width}x{height} are {num_frames * width * height} pixels, and a call shows "
                f"{self.max_pixels}; ask for fewer frames, or for frame_pixels of {self.max_pixels // num_frames}",
            )
        return width, height
