"""More initial frames than the recipe reserves room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.videozoomer import VideoZoomer

CAUGHT_BY = "prompt_fits_the_recipe"


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "planted"

    initial_frames: int = 200
