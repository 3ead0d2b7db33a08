"""Oracle policy: what a competent VideoZoomer would write for a question of the synthetic world.

Templates, after the patterns of reasoning that the paper shows (figure 3) and trains on (3.2):
    direct       answer at once
    hit          zoom into the evidence, then answer
    progressive  zoom into a wide segment, then into the evidence inside it, then answer
    split        zoom into both halves of the evidence, then answer
    reflect      zoom into a wrong segment, notice it, zoom into the evidence, then answer
As in `methods.toolkit.oracle` an oracle concludes only from frames that it was shown, and guesses where they show
nothing of use.
Segments are written with the two decimals of the frame labels, so that times can be copied.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.toolkit.oracle import (
    Places,
    Plan,
    PlanningOracle,
    frames_around,
    initial_frame_numbers,
)
from verl_video_tools.methods.videozoomer.method import VideoZoomer
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.world import VideoSpec, frames_at
from verl_video_tools.video.sampling import not_before, uniform_seconds

Segment = tuple[int, int]
"""First and last frame number, both shown."""

_MAX_FRAMES = 16
"""Frames of one zoom, where the method allows more: the paper's limit."""

_USUAL_RATE = 1.0
"""Frames per second: enough to miss no event. A tiny model that has seen higher rates asks for them everywhere, and is
refused."""

_WRONG_SECONDS = 4
"""Length of a segment that the oracle zooms into by mistake."""


@dataclass(frozen=True, kw_only=True)
class VideoZoomerOracle(PlanningOracle):
    """An oracle policy in VideoZoomer's grammar.

    Attributes:
        progressive_share: of the questions that name a window, how many follow template progressive instead of hit.
        split_share: of the questions about several things, how many follow template split instead of hit.
        reflect_share: of the questions that need a zoom, how many follow template reflect.
        method: gives the initial frames and the limit of a zoom.
    """

    frame_name: ClassVar[str] = "{seconds:.2f} s"

    progressive_share: float = 0.15
    split_share: float = 0.25
    reflect_share: float = 0.1
    method: VideoZoomer = field(default_factory=VideoZoomer)

    def _plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        segment = question.evidence[0]
        if question.kind == "direct":
            if segment[0] in initial_frame_numbers(self.method, spec):
                return "direct", []
            second = spec.fps  # more initial frames than the world's own may leave the frame out
            segment = (max(0, segment[0] - second), min(spec.num_frames - 1, segment[0] + second))
        if rng.random() < self.reflect_share and (wrong := self._elsewhere(rng, spec, segment)) is not None:
            return "reflect", [wrong, segment]
        start, end = segment
        if question.kind == "between_frames" and rng.random() < self.progressive_share:
            initial_frames = [*initial_frame_numbers(self.method, spec), spec.num_frames - 1]
            around = frames_around(initial_frames, segment)
            if around not in (segment, (0, spec.num_frames - 1)):
                return "progressive", [around, segment]
        if question.kind in ("order", "count") and rng.random() < self.split_share:
            middle = (start + end) // 2
            return "split", [(start, middle), (middle, end)]
        return "hit", [segment]

    def _careless_plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        if rng.random() < self.skip_rate:
            return "direct", []
        segment = self._elsewhere(rng, spec, (0, 0))
        if segment is None:
            raise vt.UsageError(f"a video of {spec.num_frames} frames is too short for a zoom of {_WRONG_SECONDS} s")
        return "hit", [segment]

    def _elsewhere(self, rng: random.Random, spec: VideoSpec, segment: Segment) -> Segment | None:
        """A segment that shares no frame with another; None where the video has no room for one."""
        length = _WRONG_SECONDS * spec.fps
        starts = [s for s in range(spec.num_frames - length) if s > segment[1] or s + length < segment[0]]
        if not starts:
            return None
        start = rng.choice(starts)
        return start, start + length

    def _calls(self, spec: VideoSpec, question: Question, template: str, places: Places) -> tuple[list[str], list[int]]:
        turns = [self._zoom(spec, segment) for segment in places]
        if template == "reflect":
            turns[1] = turns[1].replace("<think>", "<think>not there. ", 1)
        shown = list(question.evidence[0][:1]) if question.kind == "direct" and not places else []
        for segment in places if template == "split" else places[-1:]:  # elsewhere the last one replaces those before
            shown += self._frames_shown(spec, segment)
        return turns, shown

    def _rate(self, spec: VideoSpec, segment: Segment) -> float:
        """One frame per second; half of it, again and again, where that is too much to show."""
        max_frames = min(_MAX_FRAMES, self.method.call_frames)
        length_seconds = (segment[1] - segment[0]) / spec.fps
        rate = _USUAL_RATE
        while rate * length_seconds > max_frames:
            rate /= 2
        return rate

    def _frames_shown(self, spec: VideoSpec, segment: Segment) -> list[int]:
        start, end = segment[0] / spec.fps, segment[1] / spec.fps
        count = int(self._rate(spec, segment) * (end - start) + 1e-6)
        return frames_at(spec, not_before(uniform_seconds(start, end, count), spec.duration_seconds))

    def _zoom(self, spec: VideoSpec, segment: Segment) -> str:
        start, end = (f"{frame / spec.fps:.2f}" for frame in segment)
        request = f'{{"segment": [{start}, {end}], "fps": {self._rate(spec, segment):g}}}'
        return f"<think>from {start} to {end}</think><video_zoom>{request}</video_zoom>"
