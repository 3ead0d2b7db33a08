"""A tool is handed out that the prompt does not name, so that no policy would call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "prompt_tells_of_each_tool"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {**super().tools(info), "subtitles_at": vt.SubtitlesAt()}
