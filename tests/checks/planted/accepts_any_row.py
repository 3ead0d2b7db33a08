"""Rows that no rule grades are accepted without a judge, and fail in the reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "ungradable_rows_are_refused"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    def check_sample(self, sample: vt.Sample, judge: object | None) -> None:
        """All rows are welcome."""
