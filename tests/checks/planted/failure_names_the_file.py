"""The model reads why a file could not be opened, and so its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind

CAUGHT_BY = "failures_hide_the_file"


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "planted"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        errors = [f"{each.record.error}\n" for each in outcomes if each.record.error is not None]
        return (*errors, *super().observe(outcomes, turns_left))
