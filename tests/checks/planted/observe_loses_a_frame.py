"""The observation leaves the last frame of a call out; the record has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import VideoZoomer

CAUGHT_BY = "observations_show_the_frames_of_the_call"


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "planted"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        return super().observe([replace(each, images=each.images[:-1]) for each in outcomes], turns_left)
