"""`observe` looks for the result of a call that has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import FrameMind

CAUGHT_BY = "observations_answer_anything"


@dataclass(frozen=True, kw_only=True)
class Planted(FrameMind):
    name: ClassVar[str] = "planted"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        where = "".join(f"at {outcome.record.result['t']}: " for outcome in outcomes if "t" in outcome.record.arguments)
        for outcome in outcomes:
            assert outcome.record.error is None or outcome.record.error.code != "deadline"
        return (where, *super().observe(outcomes, turns_left))
