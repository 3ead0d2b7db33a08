"""Scripted experts: what a competent FrameThinker would write for a question of the synthetic world.

The five trajectory templates of the paper's process-supervised data (F.2):
    A  answer at once
    B  choose one segment, then answer
    C  ask for the frame number of a time, choose the segment there, then answer
    D  choose a segment, refine it by a second choice inside it, then answer
    E  choose two disjoint segments, then answer
An expert concludes only from frames that it was shown, as `label_at` tells them, so its thoughts are true; where it saw
nothing that answers the question it guesses. Texts are short and regular, because a model of a million parameters
learns from them; the last two whole numbers of a thought are the segment chosen, as the verification demands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

from verl_video_tools.demo.questions import Question
from verl_video_tools.demo.world import VideoSpec, label_at
from verl_video_tools.errors import UsageError
from verl_video_tools.methods.fields import require
from verl_video_tools.video.sampling import linspace_indices

Template = Literal["A", "B", "C", "D", "E"]
Segment = tuple[int, int]


@dataclass(frozen=True)
class Script:
    """The assistant's turns for one question, and the template that they follow."""

    template: str
    turns: tuple[str, ...]


class Expert(Protocol):
    """Writes the assistant's turns of a whole rollout ahead of it."""

    def script(self, spec: VideoSpec, question: Question) -> Script: ...


@dataclass(frozen=True, kw_only=True)
class FrameThinkerExpert:
    """An expert in FrameThinker's grammar; the same seed and question give the same script.

    Attributes:
        imperfection: probability that the expert looks where nothing of use is, or does not look at all, and guesses.
        refine_share: of the questions that name frames, how many follow template D instead of B.
        split_share: of the questions about several things, how many follow template E instead of B.
        num_frames: frames of the first look and of each choice (the method's `num_frames`).
    """

    seed: int = 0
    imperfection: float = 0.0
    refine_share: float = 0.15
    split_share: float = 0.25
    num_frames: int = 8

    def __post_init__(self) -> None:
        for name in ("imperfection", "refine_share", "split_share"):
            require(self, name, 0.0 <= getattr(self, name) <= 1.0, "between 0 and 1")

    def script(self, spec: VideoSpec, question: Question) -> Script:
        """Raises UsageError where the video is too short for a look (`num_frames + 1` frames)."""
        rng = random.Random(f"{self.seed}/{spec.seed}/{question.text}")
        if rng.random() < self.imperfection:
            template, looks = self._careless_plan(rng, spec)
        else:
            template, looks = self._plan(rng, spec, question)
        turns = [_get(question.clock or "")] if template == "C" else []
        turns += [_choose(start, end) for start, end in looks]
        # Of a first look only the frame in question matters; a refined look replaces the one before.
        shown = list(question.evidence[0][:1]) if question.kind == "direct" and not looks else []
        for start, end in looks[-1:] if template == "D" else looks:
            shown += linspace_indices(start + 1, end - 1, self.num_frames)
        return Script(template, (*turns, _answer(*conclude(rng, spec, question, shown, "frame {}".format))))

    def _plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> tuple[Template, list[Segment]]:
        if question.kind == "direct":
            return "A", []
        segment = question.evidence[0]
        if question.kind == "at_time":
            return "C", [segment]
        if question.kind == "between_things":
            return "B", [segment]
        if question.kind == "between_frames":
            around = self._first_look_around(spec, segment)
            if rng.random() < self.refine_share and around != segment and around != (0, spec.num_frames - 1):
                return "D", [around, segment]
            return "B", [segment]
        start, end = segment
        middle = (start + end) // 2
        if rng.random() < self.split_share and middle - start > self.num_frames:
            return "E", [(start, middle), (middle, end)]
        return "B", [segment]

    def _careless_plan(self, rng: random.Random, spec: VideoSpec) -> tuple[Template, list[Segment]]:
        if rng.random() < 0.5:
            return "A", []
        length = rng.randrange(self.num_frames + 1, 4 * self.num_frames)
        if length >= spec.num_frames - 1:
            raise UsageError(f"a video of {spec.num_frames} frames is too short for looks of {self.num_frames} frames")
        start = rng.randrange(spec.num_frames - 1 - length)
        return "B", [(start, start + length)]

    def _first_look_around(self, spec: VideoSpec, segment: Segment) -> Segment:
        """The nearest frames of the first look on both sides of a segment."""
        frames = linspace_indices(0, spec.num_frames - 1, self.num_frames)
        return max(f for f in frames if f <= segment[0]), min(f for f in frames if f >= segment[1])


def conclude(
    rng: random.Random, spec: VideoSpec, question: Question, shown: Sequence[int], name: Callable[[int], str]
) -> tuple[str, str]:
    """What an expert says about the frames it was shown, and the letter that it answers.

    Args:
        shown: frame numbers; what they show is all that the expert goes by.
        name: how the expert calls a frame, by its number.
    """
    letters = {text: letter for letter, text in question.options.items()}
    runs = runs_of_labels(spec, shown)
    if question.kind == "count":
        wanted = [(frame, label) for frame, label in runs if label in question.text.splitlines()[0]]
        if shown and str(len(wanted)) in letters:
            return f"{listed(wanted, name)}. {len(wanted)}", letters[str(len(wanted))]
    elif question.kind == "order":
        which = "first" if " first " in question.text else "last"
        if runs and (label := runs[0 if which == "first" else -1][1]) in letters:
            return f"{listed(runs, name)}. {which} {label}", letters[label]
    elif question.kind == "between_things":  # the look may show the clues as well, which are no options
        if named := [(frame, label) for frame, label in runs if label in letters]:
            return listed(named[:1], name), letters[named[0][1]]
    elif runs and runs[0][1] in letters:
        return listed(runs[:1], name), letters[runs[0][1]]
    return listed(runs, name), rng.choice(list(question.options))


def runs_of_labels(spec: VideoSpec, shown: Sequence[int]) -> list[tuple[int, str]]:
    """(frame, label) of the first of each run of frames that show the same thing."""
    labels = [label_at(spec, frame) for frame in shown]
    starts = [True, *(before != after for before, after in pairwise(labels))]
    return [
        (frame, label)
        for frame, label, start in zip(shown, labels, starts, strict=False)
        if start and label is not None
    ]


def listed(runs: Sequence[tuple[int, str]], name: Callable[[int], str]) -> str:
    """What the runs show, in words; `name` is how a frame is called."""
    return ", ".join(f"{name(frame)} {label}" for frame, label in runs) or "nothing"


def _choose(start: int, end: int) -> str:
    return f"<think>between {start} and {end}</think><action>choose frames between {start} and {end}</action>"


def _get(clock: str) -> str:
    return f"<think>time {clock}</think><action>get frame number at time {clock}</action>"


def _answer(thought: str, letter: str) -> str:
    return f"<think>{thought}. {letter}</think><action>output answer: {letter}</action>"
