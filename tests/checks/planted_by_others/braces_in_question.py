"""The question is put into the prompt before `str.format` fills in the numbers.

A question with a brace, such as one about code or a set, ends its rollout with a KeyError or ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import VideoZoomer

Clean = VideoZoomer


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "braces_in_question"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        asked = (sample.question + "\nThe video lasts {duration:.1f} seconds.").format(duration=info.duration_seconds)
        return [system, vt.Message("user", (*user.content[:-1], f"\n{asked}"))]
