"""A turn may hold several calls, and the observation shows the reply to the first of them alone.

Taken over from a method with one call per turn. Records say that the other calls were executed, with frames that the
model has never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT

Clean = LongVT


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "first_reply_only"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        return super().observe(outcomes[:1], turns_left)
