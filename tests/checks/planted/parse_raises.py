"""`json.loads` on what a policy wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "parse_never_raises"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    def parse(self, text: str) -> vt.ParsedTurn:
        for block in vt.find_blocks(text, "tool_call"):
            json.loads(block.inner)
        return super().parse(text)
