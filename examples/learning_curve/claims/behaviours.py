"""Behaviours of scripted policies in NeedleClips, and cold starts that mix them.

Each behaviour is the scripted expert of a method, given another truth than the row's: another place to look at, or that
a look is due where none is. So its turns are in the method's grammar, and it still concludes only from frames that it
was shown.

    skip        answers at once: right where the initial frames tell, else a guess
    look        looks where the question asks to, and only there
    look_always the same, and also where the initial frames tell
    elsewhere   looks at a random place, and guesses
    guess       the same; its thought says so first
    near        looks at the right place, too early or too late by up to a quarter of its length
    wide        looks at three times as much as the question asks for; its thought says so first
    ask         asks FrameThinker's `get_frame_number` for a time, and guesses
    locate      as `look` where its own initial frames show both ends of the place, else as `elsewhere`
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from verl_video_tools.core.types import Method
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.methods.toolkit.oracle import Script, initial_frame_numbers
from verl_video_tools.synthetic.questions import Kind, Question
from verl_video_tools.synthetic.world import VideoSpec, event_at

Behaviour = Literal["skip", "look", "look_always", "elsewhere", "guess", "near", "wide", "ask", "locate"]
Shares = Mapping[Behaviour, float]

LOOK_FRAMES = 10
"""Length of a look at what the initial frames show."""
_SHIFT = 0.25
_WIDENED = 1  # on both sides, times the length
_IMPERFECT: Mapping[Behaviour, float] = {"skip": 1.0, "ask": 1.0, "elsewhere": 0.0, "guess": 0.0}
"""Skip rates of the expert where it errs in all its scripts."""
SAID: frozenset[Behaviour] = frozenset({"guess", "wide"})
"""Named first in the thought of the call: pilots showed that what only digits tell changes too slowly."""


@dataclass(frozen=True)
class Mixture:
    """An expert that behaves in several ways; the same seed and question give the same script.

    Attributes:
        method: whose grammar it writes.
        shares: of its rollouts by behaviour, for each kind of question; those of a kind add up to 1.

    Raises:
        ValueError: they do not.
    """

    method: Method
    shares: Mapping[Kind, Shares]
    seed: int = 0

    def __post_init__(self) -> None:
        for kind, shares in self.shares.items():
            if abs(sum(shares.values()) - 1.0) > 1e-6:
                raise ValueError(f"shares of behaviours must add up to 1, got {dict(shares)} for {kind}")

    def script(self, spec: VideoSpec, question: Question) -> Script:
        rng = random.Random(f"mixture/{self.seed}/{spec.seed}/{question.text}")
        shares = self.shares[question.kind]
        (behaviour,) = rng.choices(list(shares), list(shares.values()))
        return script(behaviour, self.method, spec, question, self.seed)


def script(behaviour: Behaviour, method: Method, spec: VideoSpec, question: Question, seed: int = 0) -> Script:
    """The turns of a behaviour; its template is the behaviour's name.

    Args:
        seed: of what is random: places, guesses.
    """
    acted: Behaviour = behaviour
    if behaviour == "locate":
        acted = "look" if _sees_both_ends(method, spec, question) else "elsewhere"
    errs, skip_rate = float(acted in _IMPERFECT), _IMPERFECT.get(acted, 0.0)
    expert = scripted_oracle(method, seed=seed, answers_in_words=True, imperfection=errs, skip_rate=skip_rate)
    turns = expert.script(spec, _retold(acted, spec, question, seed)).turns
    if behaviour == "ask":
        second = random.Random(f"ask/{seed}/{spec.seed}/{question.text}").randrange(1, int(spec.duration_seconds))
        clock = f"{second // 60}:{second % 60:02d}"
        turns = (f"<think>time {clock}</think><action>get frame number at time {clock}</action>", *turns)
    elif behaviour in SAID and len(turns) > 1:
        turns = (turns[0].replace("<think>", f"<think>{behaviour} ", 1), *turns[1:])
    return Script(behaviour, turns)


def _sees_both_ends(method: Method, spec: VideoSpec, question: Question) -> bool:
    """Whether initial frames show the events that the evidence begins and ends with."""
    shown = {found for frame in initial_frame_numbers(method, spec) if (found := event_at(spec, frame)) is not None}
    return all(event_at(spec, frame) in shown for frame in question.evidence[0])


def _retold(behaviour: Behaviour, spec: VideoSpec, question: Question, seed: int) -> Question:
    """The question with the evidence where the behaviour looks."""
    start, end = question.evidence[0]
    if question.kind == "direct":
        if behaviour not in ("look_always", "near", "wide"):
            return question
        # Of a question about what lies between two things the experts take the first thing that is an option.
        question, end = replace(question, kind="between_things"), start + LOOK_FRAMES
    length = end - start
    if behaviour == "near":
        rng = random.Random(f"near/{seed}/{spec.seed}/{question.text}")
        shift = round(rng.uniform(-_SHIFT, _SHIFT) * length)
        start, end = start + shift, end + shift
    elif behaviour == "wide":
        start, end = start - _WIDENED * length, end + _WIDENED * length
    return replace(question, evidence=((max(0, start), min(end, spec.num_frames - 1)),))
