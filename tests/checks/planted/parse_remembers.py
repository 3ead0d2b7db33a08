"""A call that was made once is not read again, in whatever rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind

_SEEN: set[str] = set()

CAUGHT_BY = "parse_depends_on_the_text_alone"


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "planted"

    def parse(self, text: str) -> vt.ParsedTurn:
        parsed = super().parse(text)
        if text in _SEEN:
            return vt.ParsedTurn(thought=parsed.thought)
        _SEEN.add(text)
        return parsed
