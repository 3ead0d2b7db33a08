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
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.framemind.method import FrameMind
from verl_video_tools.methods.toolkit.oracle import (
    Places,
    Plan,
    PlanningOracle,
    initial_frame_numbers,
    runs_of_labels,
    video_info,
)
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import VideoSpec


@dataclass(frozen=True, kw_only=True)
class FrameMindOracle(PlanningOracle):
    """An oracle policy in FrameMind's grammar.

    Attributes:
        method: gives the frames of a clip.
        refine_share: of the questions about one thing in a part of the video, how many follow template refine.
    """

    frame_name: ClassVar[str] = "{seconds:.1f}s"

    method: FrameMind
    refine_share: float = 0.25

    def _plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        start, end = evidence_seconds(spec, question)
        if question.kind == "direct":
            return "frame", [(start, start)]
        is_about_one = question.kind in ("at_time", "between_frames")
        template = "refine" if is_about_one and rng.random() < self.refine_share else "clip"
        return template, [(round(start, 1), round(end, 1))]

    def _careless_plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        if rng.random() < self.skip_rate:
            return "careless", []
        start = round(rng.uniform(0.0, spec.duration_seconds - 6.0), 1)
        return "careless", [(start, round(start + rng.uniform(2.0, 6.0), 1))]

    def _calls(self, spec: VideoSpec, question: Question, template: str, places: Places) -> tuple[list[str], list[int]]:
        if not places:
            initial_frames = initial_frame_numbers(self.method, spec)
            return [], [frame for frame in initial_frames if (frame, frame) == question.evidence[0]]
        ((start, end),) = places
        if template == "frame":
            return [_frame_at_turn(start)], [question.evidence[0][0]]
        turns = [_video_clip_turn(start, end)]
        shown = self.method.video_clip().frame_numbers(start, end, video_info(spec))
        runs = runs_of_labels(spec, shown)
        if template == "refine" and runs:
            shown = [runs[0][0]]
            turns.append(_frame_at_turn(shown[0] / spec.fps))
        return turns, shown


def _video_clip_turn(start: float, end: float) -> str:
    thought = f"between {start:.1f}s and {end:.1f}s"
    return f"<think>{thought}</think><tool_call>VideoClip({start:.1f}, {end:.1f})</tool_call>{_SUMMARY}"


def _frame_at_turn(seconds: float) -> str:
    return f"<think>at {seconds:.1f}s</think><tool_call>FrameAt({seconds:.1f})</tool_call>{_SUMMARY}"


_SUMMARY = "<turn_sum>look</turn_sum>"
