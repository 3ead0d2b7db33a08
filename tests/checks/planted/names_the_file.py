"""The prompt names the video's file, whose name may tell the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind

CAUGHT_BY = "prompt_hides_the_file"


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        return [system, vt.Message("user", (f"{sample.video_path}\n", *user.content))]
