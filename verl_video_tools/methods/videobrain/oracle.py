"""Oracle policy for VideoBrain: what a competent policy would write for a question of the synthetic world.

Templates:
    direct   answer at once, from the initial frames
    uniform  sample the frames that the question names, then answer
    clip     search the whole video for the shape that the question names, then answer
Without `clip_sample` among the method's tools it samples the whole video in its place, and without `uniform_sample` it
answers from the initial frames. After `uniform` it concludes only from frames that it was shown. After `clip` it
counts on the search: it says what the shape looks like, but no frame number, since it depends on the encoder which
frames of the event are shown.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from verl_video_tools.methods.toolkit.oracle import Script, ScriptedOracle, remind
from verl_video_tools.methods.videobrain import VideoBrain
from verl_video_tools.methods.videobrain.method import ClipSample, UniformSample
from verl_video_tools.synthetic.questions import LETTERS, Question
from verl_video_tools.synthetic.world import COLOURS, VideoSpec
from verl_video_tools.video.sampling import linspace_indices

Range = tuple[int, int]
"""First frame, and the one after the last."""


@dataclass(frozen=True, kw_only=True)
class VideoBrainOracle(ScriptedOracle):
    """An oracle policy in VideoBrain's grammar."""

    answer_turn: ClassVar[str] = "<thinking>{thought}. {answer}</thinking><answer>{answer}</answer>"

    method: VideoBrain

    def script(self, spec: VideoSpec, question: Question) -> Script:
        rng = self._rng(spec, question)
        worded = words_by_frames(spec, question)
        words = search_words(spec, question)
        frames: Range | None
        if rng.random() < self.imperfection:
            frames = None if rng.random() < self.skip_rate else self._anywhere(rng, spec)
        elif words is None:
            frames = self._range(spec, worded)
        elif not self.method.searches:
            frames = (0, spec.num_frames)
        else:
            search = _call(ClipSample.name, start_frame=0, end_frame=spec.num_frames, prompt=words)
            shown_thing = worded.options[worded.answer]
            answer = self.answer_turn.format(thought=shown_thing, answer=self._answer_to(worded, worded.answer))
            return Script("clip", (f"<thinking>look for {words}</thinking>{search}", answer))
        if frames is None or UniformSample.name not in self.method.tool_names:
            shown = [worded.evidence[0][0]] if worded.kind == "direct" else []
            return Script("direct", (self._conclusion(rng, spec, worded, shown),))
        start, end = frames
        shown = list(linspace_indices(start, end - 1, self.method.call_frames))
        sample = _call(UniformSample.name, start_frame=start, end_frame=end)
        turn = f"<thinking>between {start} and {end}</thinking>{sample}"
        return Script("uniform", (*remind(worded, [turn]), self._conclusion(rng, spec, worded, shown)))

    def _range(self, spec: VideoSpec, question: Question) -> Range | None:
        """What to sample for a question that says where; None if the initial frames tell."""
        start, end = question.evidence[0]
        if question.kind != "direct":
            return start, end
        if start in linspace_indices(0, spec.num_frames - 1, self.method.initial_frames):
            return None
        return start, start + self.method.call_frames

    def _anywhere(self, rng: random.Random, spec: VideoSpec) -> Range:
        length = rng.randrange(self.method.call_frames, 4 * self.method.call_frames)
        start = rng.randrange(spec.num_frames - length)
        return start, start + length


def _call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def search_words(spec: VideoSpec, question: Question) -> str | None:
    """The shape to search for, where the question is asked without saying at which frames its thing is shown.

    So is a question about one event that the initial frames do not show, if no other event of the video has its shape.
    """
    if question.kind not in ("at_time", "between_frames"):
        return None
    _, shape = question.options[question.answer].split()
    shapes = [event.label.split()[1] for event in spec.events]
    return shape if shapes.count(shape) == 1 else None


def words_by_frames(spec: VideoSpec, question: Question) -> Question:
    """The question as VideoBrain's rows ask it: one with `search_words` asks which thing of that shape is shown,
    wherever it is; elsewhere a clock becomes the frames that show the answer."""
    shape = search_words(spec, question)
    if shape is None:
        text, *options = question.text.splitlines()
        first, last = question.evidence[0]
        text = text.replace(f"at {question.clock}", f"between frames {first} and {last}")
        return replace(question, text="\n".join([text, *options]), clock=None)
    labels = [f"{colour} {shape}" for colour in COLOURS]
    random.Random(f"{spec.seed}/{question.text}").shuffle(labels)
    texts = dict(zip(LETTERS, labels, strict=True))
    truth = question.options[question.answer]
    lines = [f"Which {shape} is shown?", *(f"{letter}. {label}" for letter, label in texts.items())]
    return replace(question, text="\n".join(lines), options=texts, answer=LETTERS[labels.index(truth)], clock=None)
