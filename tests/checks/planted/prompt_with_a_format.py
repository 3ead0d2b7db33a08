"""The prompt asks for a value in Python's format, which `load_prompt` does not fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "prompt_is_filled_in"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        system, user = super().prompt(sample, info, images)
        return [vt.Message("system", (*system.content, "The video has {duration:.1f} seconds.")), user]
