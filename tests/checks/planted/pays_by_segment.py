"""The reward reads the row's annotated segment, which most rows have not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "rows_without_annotations_are_scored"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        assert sample.video_segment_seconds is not None
        start, end = sample.video_segment_seconds
        return await super().components(trajectory, sample, judge) if start <= end else self.no_components()
