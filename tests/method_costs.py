"""What a method shows at a time, for tests of its recipe's budgets and of the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verl_video_tools.types import VideoInfo

LABEL_TOKENS = {"framethinker": 10, "videozoomer": 20, "longvt": 11, "framemind": 18, "videobrain": 10}
"""Of a frame's label beside its picture: number or time, line end, vision start and end."""
FRAMES_PER_CALL: dict[str, Callable[[Any, VideoInfo], int]] = {
    "framethinker": lambda method, info: method.frames_per_look(info),
    "videozoomer": lambda method, info: method.max_frames,
    "longvt": lambda method, info: method.max_crop_frames,
    "framemind": lambda method, info: method.clip_max_frames,
    "videobrain": lambda method, info: max(method.uniform_frames, method.clip_frames),
}
