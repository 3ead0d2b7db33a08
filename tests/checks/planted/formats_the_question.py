"""The question goes through `str.format`: braces in it raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "prompt_asks_any_question"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        asked = f"{sample.question}\nThe video lasts {{seconds}} seconds.\n".format(seconds=info.duration_seconds)
        return [super().prompt(sample, info, images)[0], vt.Message("user", (asked, *images))]
