"""Oracle policy of a composition: it looks at the part of the video that a question names, and answers.

It writes the composition's own grammar, and calls the first of its tools that shows a part of the video (`LOOKS`).
Templates:
    direct   answer at once, from the initial frames
    look     show the part that the question names, then answer
    zoom     show that part, then the part of one of its frames that holds a card (`synthetic.spatial`), then answer
It concludes only from frames that it was shown, so its thoughts are true.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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
from verl_video_tools.synthetic.world import VideoSpec, frames_at
from verl_video_tools.video.sampling import linspace_indices, not_before, uniform_seconds

Segment = tuple[int, int]
"""First and last frame number, both to be seen."""

_WRONG_SECONDS = 4
"""Length of a part that the oracle looks at by mistake."""
_HURRIED_SHARE = 0.5
"""Of the imperfect scripts that look for a card, those that find it and guess instead of zooming."""


class Look(ABC):
    """How a tool is asked for a part of a video."""

    in_seconds: ClassVar[bool] = True

    @abstractmethod
    def arguments(self, tool: Any, spec: VideoSpec, segment: Segment) -> dict[str, Any]:
        """Of the call."""

    @abstractmethod
    def shown(self, tool: Any, spec: VideoSpec, arguments: Mapping[str, Any]) -> Sequence[int]:
        """Numbers of the frames that the call shows."""

    def words(self, arguments: Mapping[str, Any]) -> str:
        """What the thought says of the part."""
        start, end = self.ends(arguments)
        return f"between {start:.1f}s and {end:.1f}s" if self.in_seconds else f"between {start} and {end}"

    @abstractmethod
    def ends(self, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
        """Start and end, as the call names them."""


@dataclass(frozen=True)
class _SecondsLook(Look):
    """Start and end in seconds with one decimal; the end is that of the last frame."""

    start: str
    end: str

    def arguments(self, tool: Any, spec: VideoSpec, segment: Segment) -> dict[str, Any]:
        first, last = segment
        return {self.start: round(first / spec.fps, 1), self.end: round((last + 1) / spec.fps, 1)}

    def shown(self, tool: Any, spec: VideoSpec, arguments: Mapping[str, Any]) -> Sequence[int]:
        start, end = self.ends(arguments)
        numbers: list[int] = tool.frame_numbers(start, end, video_info(spec))
        return numbers

    def ends(self, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
        return arguments[self.start], arguments[self.end]


class _ZoomLook(Look):
    """VideoZoomer's: a segment, and a rate: a frame a second, unless that shows fewer than two or too many."""

    def arguments(self, tool: Any, spec: VideoSpec, segment: Segment) -> dict[str, Any]:
        start, end = (round(frame / spec.fps, 2) for frame in segment)
        rate = 1.0
        while rate * (end - start) > tool.max_frames:
            rate /= 2
        while rate * (end - start) < 2 and rate < spec.fps:
            rate *= 2
        return {"segment": [start, end], "fps": rate}

    def shown(self, tool: Any, spec: VideoSpec, arguments: Mapping[str, Any]) -> Sequence[int]:
        start, end = self.ends(arguments)
        count = int(arguments["fps"] * (end - start) + 1e-6)
        return frames_at(spec, not_before(uniform_seconds(start, end, count), spec.duration_seconds)) if count else []

    def ends(self, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
        start, end = arguments["segment"]
        return start, end


@dataclass(frozen=True)
class _FramesLook(Look):
    """A range of frame numbers.

    Attributes:
        is_open: neither end is shown; else the start is.
    """

    in_seconds: ClassVar[bool] = False

    is_open: bool

    def arguments(self, tool: Any, spec: VideoSpec, segment: Segment) -> dict[str, Any]:
        start, end = segment[0] - self.is_open, segment[1] + 1
        end = min(max(end, start + tool.num_frames + self.is_open), spec.num_frames)
        return {"start_frame": max(0, min(start, end - tool.num_frames - self.is_open)), "end_frame": end}

    def shown(self, tool: Any, spec: VideoSpec, arguments: Mapping[str, Any]) -> Sequence[int]:
        start, end = self.ends(arguments)
        return linspace_indices(start + self.is_open, end - 1, tool.num_frames)

    def ends(self, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
        return arguments["start_frame"], arguments["end_frame"]


LOOKS: dict[str, Look] = {
    "crop_video": _SecondsLook("start_time", "end_time"),
    "VideoClip": _SecondsLook("t_start", "t_end"),
    "video_zoom": _ZoomLook(),
    "uniform_sample": _FramesLook(is_open=False),
    "choose_frames": _FramesLook(is_open=True),
}
"""How the oracle asks each tool that shows a part of a video."""


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
                f"{', '.join(LOOKS)}. Give rows with turns of your own ({page('cold-start')})"
            )

    @property
    def _tool(self) -> str | None:
        return next((name for name in self.method.composition.tools if name in LOOKS), None)

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
        look, tool = LOOKS[name], self.method.composition.tools[name].tool
        arguments = look.arguments(tool, spec, segment)
        turn = self.method.composition.grammar.write_call(look.words(arguments), name, arguments)
        return turn, look.shown(tool, spec, arguments)

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
            position: of the frame among those of the last look.
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
        by_number = self._tool is not None and not LOOKS[self._tool].in_seconds
        return f"frame {frame}" if by_number else f"{frame / spec.fps:.1f}s"

    def _conclusion(self, rng: random.Random, spec: VideoSpec, question: Question, shown: Sequence[int]) -> str:
        thought, letter = conclude(rng, spec, question, shown, partial(self.frame_name, spec))
        answer = self._answer_to(question, letter)
        return self.method.composition.grammar.write_answer(f"{thought}. {answer}", answer)
