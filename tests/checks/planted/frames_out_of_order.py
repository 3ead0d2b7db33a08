"""Frames of the prompt in another order than planned; the record tells the planned one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "prompt_shows_its_frames"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        return super().prompt(sample, info, [*images[::2], *images[1::2]])
