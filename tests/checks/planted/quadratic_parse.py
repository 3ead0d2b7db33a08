"""A regular expression that starts anew at every opening tag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import VideoZoomer

_ZOOM = re.compile(r"<video_zoom>.*?</video_zoom>", re.DOTALL)

CAUGHT_BY = "parse_takes_linear_time"


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "planted"

    def parse(self, text: str) -> vt.ParsedTurn:
        _ZOOM.findall(text)
        return super().parse(text)
