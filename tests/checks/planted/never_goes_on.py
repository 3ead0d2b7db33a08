"""A turn that calls is taken for the last one: no call is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "a_call_asks_for_another_turn"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    def goes_on_after(self, parsed: vt.ParsedTurn) -> bool:
        return parsed.summary is not None
