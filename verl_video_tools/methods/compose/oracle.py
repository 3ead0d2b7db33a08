"""Oracle policy of a composition: it crops the part of the video that a question names, and answers.

Templates:
    direct   answer at once, from the initial frames
    look     show the part that the question names, then answer
    zoom     show that part, then the part of one of its frames that holds a card (`synthetic.spatial`), then answer
It concludes only from frames that it was shown, so its thoughts are true.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar

from verl_video_tools.core.machine import page
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.method import Compose
from verl_video_tools.methods.longvt.method import CropVideo
from verl_video_tools.methods.toolkit.oracle import (
    Places,
    Plan,
    PlanningOracle,
    Script,
    initial_frames_tell,
    native_call,
    video_info,
)
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.spatial import card_at, window_of
from verl_video_tools.synthetic.world import VideoSpec

Segment = tuple[int, int]
"""First and last frame number, both to be seen."""

_WRONG_SECONDS = 4
"""Length of a part that the oracle shows by mistake."""
_HURRIED_SHARE = 0.5
"""Of the imperfect scripts that look for a card, those that find it and guess instead of zooming."""


@dataclass(frozen=True, kw_only=True)
class ComposeOracle(PlanningOracle):
    """The oracle policy of a composition. Questions without options need `answers_in_words`."""

    takes_open_questions: ClassVar[bool] = True
    answer_turn: ClassVar[str] = "<think>{thought}. {answer}</think>\n<answer>{answer}</answer>"

    frame_name: ClassVar[str] = "{seconds:.1f}s"

    method: Compose = field(default_factory=Compose)

    def __post_init__(self) -> None:
        """Raises UsageError if the composition has tools without `crop_video`."""
        super().__post_init__()
        tools = self.method.composition.tools
        if tools and self._crop is None:
            raise vt.UsageError(
                f"{self.method.file}: there is no scripted expert for the tools {', '.join(tools)}; it needs "
                f"{CropVideo.name}. Give rows with turns of your own ({page('cold-start')})"
            )

    @property
    def _crop(self) -> CropVideo | None:
        tool = self.method.composition.tools.get(CropVideo.name)
        return tool if isinstance(tool, CropVideo) else None

    @property
    def _zoom(self) -> vt.Zoom | None:
        tool = self.method.composition.tools.get(vt.Zoom.name)
        return tool if isinstance(tool, vt.Zoom) and tool.frame_by == "time" else None

    def script(self, spec: VideoSpec, question: Question) -> Script:
        if question.kind == "on_card" and self._crop is not None:
            return self._card_script(self._rng(spec, question), spec, question, self._crop)
        return super().script(spec, question)

    def _plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        first = min(start for start, _ in question.evidence)
        last = max(end for _, end in question.evidence)
        if question.kind != "direct":
            return self._looking((first, last))
        if initial_frames_tell(self.method, spec, question):
            return "direct", []
        half = spec.fps // 2  # a single frame is no part that a tool shows
        return self._looking((max(0, first - half), min(spec.num_frames - 1, last + half)))

    def _careless_plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        if rng.random() < self.skip_rate:
            return "direct", []
        return self._looking(self._wrong_segment(rng, spec))

    def _looking(self, segment: Segment) -> Plan:
        return ("direct", []) if self._crop is None else ("look", [segment])

    def _calls(self, spec: VideoSpec, question: Question, template: str, places: Places) -> tuple[list[str], list[int]]:
        crop = self._crop
        if not places or crop is None:
            return [], [question.evidence[0][0]] if initial_frames_tell(self.method, spec, question) else []
        turn, frames = self._crop_turn(spec, places[0], crop)
        return [turn], frames

    def _crop_turn(self, spec: VideoSpec, segment: Segment, crop: CropVideo) -> tuple[str, list[int]]:
        """The turn that shows a part of the video, and the numbers of the frames that it shows."""
        first, last = segment
        start, end = round(first / spec.fps, 1), round((last + 1) / spec.fps, 1)
        thought, arguments = f"between {start:.1f}s and {end:.1f}s", {"start_time": start, "end_time": end}
        return native_call(thought, crop.name, arguments), crop.frame_numbers(start, end, video_info(spec))

    def _card_script(self, rng: random.Random, spec: VideoSpec, question: Question, crop: CropVideo) -> Script:
        """Whole frames show where a card is, and a zoom shows what is on it. Without a zoom the oracle guesses."""
        errs = rng.random() < self.imperfection
        if errs and rng.random() < self.skip_rate:
            return Script("direct", (self._card_answer(rng, question, "nothing", None),))
        hurries = errs and rng.random() < _HURRIED_SHARE
        segment = self._wrong_segment(rng, spec) if errs and not hurries else question.evidence[0]
        turn, shown = self._crop_turn(spec, segment, crop)
        cards = [(frame, card) for frame in shown if (card := card_at(spec, frame))]
        if not cards:
            return Script("look", (turn, self._card_answer(rng, question, "nothing", None)))
        frame, (place, thing) = cards[0]
        seen, zoom = f"{self._name(spec, frame)} {place}", self._zoom
        if hurries or zoom is None:
            return Script("look", (turn, self._card_answer(rng, question, seen, None)))
        box = vt.PixelBox(*window_of(place)).in_unit(zoom.unit, spec.side_pixels, spec.side_pixels)
        edges = [int(edge) if edge == int(edge) else edge for edge in box]
        arguments = {"time": round(frame / spec.fps, 2), "box": edges}
        answer = self._card_answer(rng, question, f"{self._name(spec, frame)} {thing}", thing)
        return Script("zoom", (turn, native_call(seen, zoom.name, arguments), answer))

    def _card_answer(self, rng: random.Random, question: Question, seen: str, thing: str | None) -> str:
        """The turn that names the thing. It guesses if the thing was not seen or is not among the options."""
        letters = {text: letter for letter, text in question.options.items()}
        answer = self._answer_to(question, letters.get(thing or "") or rng.choice(list(question.options)))
        return self.answer_turn.format(thought=seen, answer=answer)

    @staticmethod
    def _wrong_segment(rng: random.Random, spec: VideoSpec) -> Segment:
        start = rng.randrange(max(1, spec.num_frames - _WRONG_SECONDS * spec.fps))
        return start, min(start + _WRONG_SECONDS * spec.fps, spec.num_frames) - 1
