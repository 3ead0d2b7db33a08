"""The prompt names the seconds where the answer is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videobrain import VideoBrain

CAUGHT_BY = "prompt_hides_the_truth"


@dataclass(frozen=True, kw_only=True)
class Planted(VideoBrain):
    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        where = f"Look near {sample.video_segment_seconds}. " if sample.video_segment_seconds else ""
        return [vt.Message("system", (where, *system.content)), user]
