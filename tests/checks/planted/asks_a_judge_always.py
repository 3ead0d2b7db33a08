"""The reward asks the judge about every answer, also of a multiple-choice row in a run that has none."""

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
        if trajectory.answer is None:
            return self.no_components()
        assert judge is not None
        label = await judge.judge(sample.question, sample.ground_truth, trajectory.answer)
        return {**self.no_components(), "accuracy": self.accuracy_reward * (label is vt.AnswerLabel.CORRECT)}
