"""Oracle policy for FrameMind: what a competent policy would write for a question of the synthetic world.

The paper trains without a cold start. A model of a million parameters has to learn the grammar somewhere, so the
synthetic world's rollouts come from here. Templates:
    frame    show the frame that the question names, then answer
    clip     show the part that the question names, then answer
    refine   show the part, then one frame where the thing was seen, then answer
It concludes only from frames that it was shown, so its thoughts are true. It relies on the initial frames, which
differ on every rung of the ladder, only where it calls no tool.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.framemind.method import FrameMind
from verl_video_tools.methods.toolkit.oracle import (
    Script,
    ScriptedOracle,
    initial_frame_numbers,
    remind,
    runs_of_labels,
    video_info,
)
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import VideoSpec


@dataclass(frozen=True, kw_only=True)
class FrameMindOracle(ScriptedOracle):
    """An oracle policy in FrameMind's grammar.

    Attributes:
        method: gives the frames of a clip.
        refine_share: of the questions about one thing in a part of the video, how many follow template refine.
    """

    frame_name: ClassVar[str] = "{seconds:.1f}s"

    method: FrameMind
    refine_share: float = 0.25

    def script(self, spec: VideoSpec, question: Question) -> Script:
        rng = self._rng(spec, question)
        if rng.random() < self.imperfection:
            if rng.random() < self.skip_rate:
                seen = [
                    frame
                    for frame in initial_frame_numbers(self.method, spec)
                    if (frame, frame) == question.evidence[0]
                ]
                return Script("careless", (self._conclusion(rng, spec, question, seen),))
            start = round(rng.uniform(0.0, spec.duration_seconds - 6.0), 1)
            return self._clip(rng, spec, question, start, round(start + rng.uniform(2.0, 6.0), 1), "careless")
        if question.kind == "direct":
            frame = question.evidence[0][0]
            return Script("frame", (_frame_at_turn(frame / spec.fps), self._conclusion(rng, spec, question, (frame,))))
        start, end = evidence_seconds(spec, question)
        is_about_one = question.kind in ("at_time", "between_frames")
        template = "refine" if is_about_one and rng.random() < self.refine_share else "clip"
        return self._clip(rng, spec, question, round(start, 1), round(end, 1), template)

    def _clip(
        self, rng: random.Random, spec: VideoSpec, question: Question, start: float, end: float, template: str
    ) -> Script:
        shown: Sequence[int] = self.method.video_clip().frame_numbers(start, end, video_info(spec))
        turns = [_video_clip_turn(start, end)]
        runs = runs_of_labels(spec, shown)
        if template == "refine" and runs:
            shown = [runs[0][0]]
            turns.append(_frame_at_turn(shown[0] / spec.fps))
        return Script(template, (*remind(question, turns), self._conclusion(rng, spec, question, shown)))


def _video_clip_turn(start: float, end: float) -> str:
    thought = f"between {start:.1f}s and {end:.1f}s"
    return f"<think>{thought}</think><tool_call>VideoClip({start:.1f}, {end:.1f})</tool_call>{_SUMMARY}"


def _frame_at_turn(seconds: float) -> str:
    return f"<think>at {seconds:.1f}s</think><tool_call>FrameAt({seconds:.1f})</tool_call>{_SUMMARY}"


_SUMMARY = "<turn_sum>look</turn_sum>"
