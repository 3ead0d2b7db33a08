"""Oracle policy of a composition: it calls a tool for the part of the video that a question names, and answers.

It writes the composition's own grammar, and calls the first of its tools that takes a segment (`SEGMENT_ARGUMENTS`).
Templates:
    direct   answer at once, from the initial frames
    look     show the part that the question names, then answer
    zoom     show that part, then the part of one of its frames that holds a card (`synthetic.spatial`), then answer
It concludes only from frames that it was shown, so its thoughts are true.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from verl_video_tools.core.pages import page
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.method import Compose
from verl_video_tools.methods.toolkit.oracle import (
    Script,
    ScriptedOracle,
    conclude,
    initial_frame_numbers,
    initial_frames_tell,
    remind,
    video_info,
)
from verl_video_tools.synthetic.cards import Place, window_of
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.spatial import card_at
from verl_video_tools.synthetic.world import VideoSpec

Segment = tuple[int, int]
"""First and last frame number, both to be seen."""

_WRONG_SECONDS = 4
"""Length of a part that the oracle shows by mistake."""
_HURRIED_SHARE = 0.5
"""Of the imperfect scripts that look for a card, those that find it and guess instead of zooming."""


SEGMENT_ARGUMENTS = {"crop_video": ("start_time", "end_time"), "VideoClip": ("t_start", "t_end")}
"""The tools that the oracle can call for a part of a video, and the names of its start and end, in seconds."""


@dataclass(frozen=True, kw_only=True)
class ComposeOracle(ScriptedOracle):
    """An oracle policy in a composition's grammar. Questions without options want one that answers in words."""

    takes_open_questions: ClassVar[bool] = True

    method: Compose = field(default_factory=Compose)

    def __post_init__(self) -> None:
        """Raises UsageError where the composition has tools, and none of them shows a part of the video."""
        super().__post_init__()
        tools = self.method.composition.tools
        if tools and self._tool is None:
            raise vt.UsageError(
                f"{self.method.file}: there is no scripted expert for the tools {', '.join(tools)}; it needs one of "
                f"{', '.join(SEGMENT_ARGUMENTS)}. Give rows with turns of your own ({page('cold-start')})"
            )

    @property
    def _tool(self) -> str | None:
        return next((name for name in self.method.composition.tools if name in SEGMENT_ARGUMENTS), None)

    def script(self, spec: VideoSpec, question: Question) -> Script:
        rng = self._rng(spec, question)
        if question.kind == "on_card" and self._tool is not None:
            return self._card_script(rng, spec, question, self._tool)
        segment = self._segment(rng, spec, question)
        if segment is None or self._tool is None:
            told = [question.evidence[0][0]] if initial_frames_tell(self.method, spec, question) else []
            return Script("direct", (self._conclusion(rng, spec, question, told),))
        turn, shown = self._look(spec, segment, self._tool)
        return Script("look", (*remind(question, [turn]), self._conclusion(rng, spec, question, shown)))

    def _look(self, spec: VideoSpec, segment: Segment, name: str) -> tuple[str, Sequence[int]]:
        """The turn that shows a part of the video, and the numbers of the frames that it shows."""
        tool: Any = self.method.composition.tools[name].tool
        first, last = segment
        start, end = round(first / spec.fps, 1), round((last + 1) / spec.fps, 1)
        arguments = dict(zip(SEGMENT_ARGUMENTS[name], (start, end), strict=True))
        thought = f"between {start:.1f}s and {end:.1f}s"
        turn = self.method.composition.grammar.write_call(thought, name, arguments)
        return turn, tool.frame_numbers(start, end, video_info(spec))

    def _card_script(self, rng: random.Random, spec: VideoSpec, question: Question, name: str) -> Script:
        """Whole frames show where a card is, and a zoom what is on it; without a zoom the oracle guesses."""
        errs = rng.random() < self.imperfection
        if errs and rng.random() < self.skip_rate:
            return Script("direct", (self._card_answer(rng, question, "nothing", None),))
        hurries = errs and rng.random() < _HURRIED_SHARE
        segment = self._wrong_segment(rng, spec) if errs and not hurries else question.evidence[0]
        turn, shown = self._look(spec, segment, name)
        cards = [(position, frame, card) for position, frame in enumerate(shown) if (card := card_at(spec, frame))]
        if not cards:
            return Script("look", (turn, self._card_answer(rng, question, "nothing", None)))
        position, frame, (place, thing) = cards[0]
        seen = f"{self.frame_name(spec, frame)} {place}"
        zoom = self._zoom
        if hurries or zoom is None:
            return Script("look", (turn, self._card_answer(rng, question, seen, None)))
        arguments = self._zoom_arguments(zoom, spec, frame, position, place)
        zoomed = self.method.composition.grammar.write_call(seen, zoom.name, arguments)
        told = f"{self.frame_name(spec, frame)} {thing}"
        return Script("zoom", (turn, zoomed, self._card_answer(rng, question, told, thing)))

    @property
    def _zoom(self) -> vt.Zoom | None:
        offered = self.method.composition.tools.get(vt.Zoom.name)
        return offered.tool if offered is not None and isinstance(offered.tool, vt.Zoom) else None

    def _zoom_arguments(
        self, tool: vt.Zoom, spec: VideoSpec, frame: int, position: int, place: Place
    ) -> dict[str, Any]:
        """Of a call that shows what is on a card.

        Args:
            position: of the frame among those of the last call.
        """
        box = vt.PixelBox(*window_of(place)).in_unit(tool.unit, spec.side_pixels, spec.side_pixels)
        edges = [int(edge) if edge == int(edge) else edge for edge in box]
        if tool.frame_by == "frame":
            return {"frame": len(initial_frame_numbers(self.method, spec)) + position, "box": edges}
        return {"time": round(frame / spec.fps, 2), "box": edges}

    def _card_answer(self, rng: random.Random, question: Question, seen: str, thing: str | None) -> str:
        """The turn that names the thing, or guesses where it was not seen or is no option."""
        letters = {text: letter for letter, text in question.options.items()}
        answer = self._answer_to(question, letters.get(thing or "") or rng.choice(list(question.options)))
        return self.method.composition.grammar.write_answer(f"{seen}. {answer}", answer)

    @staticmethod
    def _wrong_segment(rng: random.Random, spec: VideoSpec) -> Segment:
        start = rng.randrange(max(1, spec.num_frames - _WRONG_SECONDS * spec.fps))
        return start, min(start + _WRONG_SECONDS * spec.fps, spec.num_frames) - 1

    def _segment(self, rng: random.Random, spec: VideoSpec, question: Question) -> Segment | None:
        """The part to look at; None where the oracle answers at once."""
        if rng.random() < self.imperfection:
            if rng.random() < self.skip_rate:
                return None
            return self._wrong_segment(rng, spec)
        first = min(start for start, _ in question.evidence)
        last = max(end for _, end in question.evidence)
        if question.kind != "direct":
            return first, last
        if initial_frames_tell(self.method, spec, question):
            return None
        half = spec.fps // 2  # a single frame is no part that a tool shows
        return max(0, first - half), min(spec.num_frames - 1, last + half)

    def frame_name(self, spec: VideoSpec, frame: int) -> str:
        return f"{frame / spec.fps:.1f}s"

    def _conclusion(self, rng: random.Random, spec: VideoSpec, question: Question, shown: Sequence[int]) -> str:
        thought, letter = conclude(rng, spec, question, shown, partial(self.frame_name, spec))
        answer = self._answer_to(question, letter)
        return self.method.composition.grammar.write_answer(f"{thought}. {answer}", answer)
