"""Oracle policy for FrameThinker: what a competent policy would write for a question of the synthetic world.

The five trajectory templates of the paper's process-supervised data (F.2):
    A  answer at once
    B  choose one segment, then answer
    C  ask for the frame number of a time, choose the segment there, then answer
    D  choose a segment, refine it by a second choice inside it, then answer
    E  choose two disjoint segments, then answer
The last two whole numbers of a thought are the segment chosen, as the verification demands.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker.method import FrameThinker
from verl_video_tools.methods.toolkit.oracle import Places, Plan, PlanningOracle, frames_around, video_info
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.world import VideoSpec
from verl_video_tools.video.sampling import linspace_indices


@dataclass(frozen=True, kw_only=True)
class FrameThinkerOracle(PlanningOracle):
    """An oracle policy in FrameThinker's grammar.

    Attributes:
        refine_share: of the questions that name frames, how many follow template D instead of B.
        split_share: of the questions about several things, how many follow template E instead of B.
        method: gives the initial frames and those of each choice.
    """

    answer_turn: ClassVar[str] = "<think>{thought}. {answer}</think><action>output answer: {answer}</action>"

    refine_share: float = 0.15
    split_share: float = 0.25
    method: FrameThinker = field(default_factory=FrameThinker)

    def _plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        if question.kind == "direct":
            return "A", []
        segment = question.evidence[0]
        if question.kind == "at_time":
            return "C", [segment]
        if question.kind == "between_things":
            return "B", [segment]
        if question.kind == "between_frames":
            initial_frames = linspace_indices(0, spec.num_frames - 1, self._num_frames(spec))
            around = frames_around(initial_frames, segment)
            if rng.random() < self.refine_share and around != segment and around != (0, spec.num_frames - 1):
                return "D", [around, segment]
            return "B", [segment]
        start, end = segment
        middle = (start + end) // 2
        if rng.random() < self.split_share and middle - start > self._num_frames(spec):
            return "E", [(start, middle), (middle, end)]
        return "B", [segment]

    def _careless_plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        if rng.random() < self.skip_rate:
            return "A", []
        num_frames = self._num_frames(spec)
        length = rng.randrange(num_frames + 1, 4 * num_frames)
        if length >= spec.num_frames - 1:
            raise vt.UsageError(f"a video of {spec.num_frames} frames is too short for looks of {num_frames} frames")
        start = rng.randrange(spec.num_frames - 1 - length)
        return "B", [(start, start + length)]

    def _calls(self, spec: VideoSpec, question: Question, template: str, places: Places) -> tuple[list[str], list[int]]:
        turns = [_get(question.clock or "")] if template == "C" else []
        turns += [_choose(start, end) for start, end in places]
        # Of the initial frames only the one in question matters; a refined segment replaces the one before.
        shown = list(question.evidence[0][:1]) if question.kind == "direct" and not places else []
        for start, end in places[-1:] if template == "D" else places:
            shown += linspace_indices(start + 1, end - 1, self._num_frames(spec))
        return turns, shown

    def _num_frames(self, spec: VideoSpec) -> int:
        return self.method.frames_per_call(video_info(spec))


def _choose(start: int, end: int) -> str:
    return f"<think>between {start} and {end}</think><action>choose frames between {start} and {end}</action>"


def _get(clock: str) -> str:
    return f"<think>time {clock}</think><action>get frame number at time {clock}</action>"
