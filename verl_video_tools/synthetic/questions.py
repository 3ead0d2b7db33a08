"""Multiple-choice questions about the synthetic world, each with the truth and with where it can be seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from verl_video_tools.synthetic.world import LABELS, Event, VideoSpec, default_initial_frames, is_hidden, label_at

Kind = Literal["direct", "at_time", "between_frames", "order", "count", "between_things", "on_card"]
LETTERS = "ABCD"
MAX_WINDOW_FRAMES = 100
"""Longest window that a question names: 8 frames spread over it then meet every event and every gap."""

AT_TIME_FRAMES = 10
"""Length of the window that starts at the frame of an `at_time` question."""

_PATIENCE = 300  # attempts in a row without a new question before giving up
_KIND_WEIGHTS: dict[Kind, float] = {"direct": 0.2, "at_time": 0.32, "between_frames": 0.28, "order": 0.1, "count": 0.1}
KINDS: tuple[Kind, ...] = tuple(_KIND_WEIGHTS)
"""Kinds of `make_questions`; `between_things` belongs to `synthetic.needle`, `on_card` to `synthetic.spatial`."""


@dataclass(frozen=True)
class Question:
    """One question with four options.

    Attributes:
        text: what the model reads: the question, then one line per option ("A. red circle").
        options: letter to text, in order of the letters.
        answer: the letter of the true option.
        kind: `direct` (the initial frames show it), or what to do: `at_time` (frame number of a time, then a zoom),
            `between_frames`, `order` and `count` (a zoom into the window that the question names), `between_things`
            (find two things in the initial frames, and zoom between them), `on_card` (find a card in the window that
            the question names, and zoom into the part of a frame that shows it).
        evidence: parts of the video that show the answer, as (first frame, last frame), both inclusive. For `direct`
            the frame that the question names.
        clock: the time that an `at_time` question names, minutes and seconds as written in the text; else None.
    """

    text: str
    options: dict[str, str]
    answer: str
    kind: Kind
    evidence: tuple[tuple[int, int], ...]
    clock: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Question:
        """The question that `dataclasses.asdict` made this of, also after JSON."""
        return cls(**{**data, "evidence": tuple((first, last) for first, last in data["evidence"])})


def make_questions(spec: VideoSpec, count: int, seed: int) -> list[Question]:
    """`count` different questions about one video; a function of the arguments only.

    Raises:
        ValueError: the video has too few events for so many different questions.
    """
    rng = random.Random(f"{spec.seed}-{seed}")
    questions: dict[tuple[str, str], Question] = {}
    fruitless = 0
    while len(questions) < count:
        kind = rng.choices(KINDS, [_KIND_WEIGHTS[kind] for kind in KINDS])[0]
        question = _MAKERS[kind](rng, spec)
        if question is None or (key := (kind, question.text.splitlines()[0])) in questions:
            fruitless += 1
            if fruitless > _PATIENCE:
                raise ValueError(
                    f"found only {len(questions)} of {count} different questions about {spec}; ask for fewer"
                )
            continue
        fruitless = 0
        questions[key] = question
    return list(questions.values())


def _hidden(spec: VideoSpec) -> list[Event]:
    return [event for event in spec.events if is_hidden(event, spec.num_frames)]


def _direct(rng: random.Random, spec: VideoSpec) -> Question | None:
    frames = [frame for frame in default_initial_frames(spec.num_frames) if label_at(spec, frame) is not None]
    if not frames:
        return None
    frame = rng.choice(frames)
    truth = label_at(spec, frame)
    assert truth is not None
    return _about_things(rng, spec, "direct", f"What is shown in frame {frame}?", truth, (frame, frame))


def _at_time(rng: random.Random, spec: VideoSpec) -> Question | None:
    event = rng.choice(_hidden(spec))
    # The frame of a whole second, with enough of the event after it that a call for the next frames meets the event.
    seconds = [s for s in range(120) if event.start_frame <= s * spec.fps <= event.end_frame - spec.fps]
    second = rng.choice(seconds)
    frame = second * spec.fps
    if frame + AT_TIME_FRAMES >= spec.num_frames:
        return None
    clock = f"{second // 60}:{second % 60:02d}"
    window = (frame, frame + AT_TIME_FRAMES)
    return _about_things(rng, spec, "at_time", f"What is shown at {clock}?", event.label, window, clock)


def _between_frames(rng: random.Random, spec: VideoSpec) -> Question | None:
    event = rng.choice(_hidden(spec))
    window = _window(rng, spec, event, event)
    if window is None:
        return None
    text = f"What is shown between frames {window[0]} and {window[1]}?"
    return _about_things(rng, spec, "between_frames", text, event.label, window)


def _order(rng: random.Random, spec: VideoSpec) -> Question | None:
    pairs = [
        (one, two)
        for one, two in pairwise(spec.events)
        if one.label != two.label and is_hidden(one, spec.num_frames) and is_hidden(two, spec.num_frames)
    ]
    if not pairs:
        return None
    one, two = rng.choice(pairs)
    window = _window(rng, spec, one, two)
    if window is None:
        return None
    which = rng.choice(("first", "last"))
    truth, trap = (one.label, two.label) if which == "first" else (two.label, one.label)
    text = f"What is shown {which} between frames {window[0]} and {window[1]}?"
    return _about_things(rng, spec, "order", text, truth, window, trap=trap)


def _count(rng: random.Random, spec: VideoSpec) -> Question | None:
    hidden = _hidden(spec)
    repeated = [one for one, two in pairwise(hidden) if one.label == two.label]
    if repeated and rng.random() < 0.7:
        first = rng.choice(repeated)
        last, label = hidden[hidden.index(first) + 1], first.label
    else:
        first, label = rng.choice(hidden), rng.choice(spec.events).label
        last = rng.choice([event for event in hidden if event.start_frame >= first.start_frame])
    window = _window(rng, spec, first, last)
    if window is None:
        return None
    truth = sum(event.label == label and window[0] < event.start_frame <= window[1] for event in spec.events)
    article = "a" if label[0] not in "aeiou" else "an"
    text = f"How often is {article} {label} shown between frames {window[0]} and {window[1]}?"
    return lettered_question(rng, "count", text, str(truth), [str(n) for n in range(4) if n != truth], (window,))


_MAKERS: dict[Kind, Callable[[random.Random, VideoSpec], Question | None]] = {
    "direct": _direct,
    "at_time": _at_time,
    "between_frames": _between_frames,
    "order": _order,
    "count": _count,
}


def _window(rng: random.Random, spec: VideoSpec, first: Event, last: Event) -> tuple[int, int] | None:
    """A window around the events from `first` to `last` that touches no other; None if it shows too much.

    Every event inside must be hidden, else the initial frames would reveal part of the answer.
    """
    start = first.start_frame - rng.randrange(3, 14)
    end = last.end_frame + rng.randrange(3, 14)
    inside = [event for event in spec.events if start <= event.end_frame and event.start_frame <= end]
    named = [event for event in spec.events if first.start_frame <= event.start_frame <= last.start_frame]
    good = (
        start >= 0
        and end < spec.num_frames
        and end - start <= MAX_WINDOW_FRAMES
        and inside == named
        and all(is_hidden(event, spec.num_frames) for event in inside)
    )
    return (start, end) if good else None


def _about_things(
    rng: random.Random,
    spec: VideoSpec,
    kind: Kind,
    text: str,
    truth: str,
    window: tuple[int, int],
    clock: str | None = None,
    trap: str | None = None,
) -> Question:
    """A question whose options are things: the truth, up to two other things of the video, and things that the video
    does not show."""
    elsewhere = sorted({event.label for event in spec.events} - {truth, trap})
    wrong = ([trap] if trap else []) + rng.sample(elsewhere, min(2 - bool(trap), len(elsewhere)))
    absent = [label for label in LABELS if label != truth and label not in wrong and label not in elsewhere]
    wrong += rng.sample(absent, 3 - len(wrong))
    return lettered_question(rng, kind, text, truth, wrong, (window,), clock)


def lettered_question(
    rng: random.Random,
    kind: Kind,
    text: str,
    truth: str,
    wrong: list[str],
    evidence: tuple[tuple[int, int], ...],
    clock: str | None = None,
) -> Question:
    """A question whose four options stand in random order."""
    texts = [truth, *wrong]
    rng.shuffle(texts)
    options = dict(zip(LETTERS, texts, strict=True))
    answer = LETTERS[texts.index(truth)]
    lines = [text, *(f"{letter}. {option}" for letter, option in options.items())]
    return Question("\n".join(lines), options, answer, kind, evidence, clock)
