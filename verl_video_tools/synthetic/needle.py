"""NeedleClips: videos of 1 to 10 minutes whose questions are decided by a short event that the initial frames miss.

A video has six events. Two *clues* cover neighbouring initial frames (8, uniform, give or take one
frame, since methods round differently). The others are *needles*, which no initial frame shows: one between
the clues, two in another stretch between initial frames, and one alone in a third. Kinds of questions:

    at_time         (a) the question names a time; VideoBrain reads frame numbers instead
                    (c) VideoBrain's question names only the shape of a needle if no other event has that shape, as is
                        the case for the lone one (`methods.videobrain.oracle`)
    between_things  (b) the question names two clues; the initial frames show where they are
    order           (d) which of two needles comes first, or last
    direct          (e) what an initial frame shows

Outside `direct` the initial frames say nothing about which option is true: they show none of the options, and all
four are equally likely. So no policy is better than 25 % without a tool call. A call that shows 8 frames of the
evidence always shows the answer: an event is longer than the distance between these frames.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from verl_video_tools.synthetic.questions import AT_TIME_FRAMES, Kind, Question, lettered_question
from verl_video_tools.synthetic.world import COLOURS, LABELS, Event, VideoSpec, default_initial_frames, is_hidden

NEEDLE_FPS = 2
"""Two frames per second keep frame numbers of 10 minutes within those that the base models learned to read."""
MIN_SECONDS, MAX_SECONDS = 60, 600
NEEDLE_KINDS: tuple[Kind, ...] = ("direct", "at_time", "between_things", "order")

MOST_BY_INITIAL_FRAMES = 0.40
"""Upper bound of the accuracy of a policy without calls on these kinds of questions, except `direct`. The benchmark of
bounds and its tests check it."""

_SHORTEST_SHARE, _LONGEST_SHARE = 1 / 40, 1 / 28
"""Length of an event as a share of the video; 8 frames between two initial frames are 1/49 of it apart."""
_MIN_EVENT_FRAMES = 6
CLEARANCE_FRAMES = 2
"""Least distance of needles from the initial frames, and from each other."""
_LONE_SHARE = 0.5  # of the questions about a time, those about the lone needle
_PATIENCE = 300  # attempts in a row without a new question before giving up


class _Roles(NamedTuple):
    """The events of a video by what they are for."""

    clues: tuple[Event, Event]
    between: Event
    pair: tuple[Event, Event]
    lone: Event


def needle_spec(seed: int) -> VideoSpec:
    """A video of 1 to 10 minutes with two clues and four needles; a function of `seed` only."""
    rng = random.Random(f"needle/{seed}")
    while True:
        num_frames = rng.randrange(MIN_SECONDS * NEEDLE_FPS, MAX_SECONDS * NEEDLE_FPS + 1)
        initial_frames = default_initial_frames(num_frames)
        gap = rng.randrange(1, len(initial_frames) - 2)
        others = [number for number in range(len(initial_frames) - 1) if abs(number - gap) > 1]
        of_pair, of_lone = rng.sample(others, 2)
        lengths = [event_length(rng, num_frames) for _ in range(6)]
        clues = [_around(rng, initial_frames[gap + number], lengths[number]) for number in range(2)]
        (between,) = placed_between(rng, clues[0][1], clues[1][0], lengths[2:3])
        pair = placed_between(rng, initial_frames[of_pair], initial_frames[of_pair + 1], lengths[3:5])
        (lone,) = placed_between(rng, initial_frames[of_lone], initial_frames[of_lone + 1], lengths[5:])
        lone_label = rng.choice(LABELS)
        labels = rng.sample(_of_other_shapes(lone_label), 5)
        places = [*zip((*clues, between, *pair), labels, strict=True), (lone, lone_label)]
        events = tuple(Event(start, end, label) for (start, end), label in sorted(places))
        spec = VideoSpec(seed, NEEDLE_FPS, num_frames, events, world="needle")
        if _seconds_to_ask(spec, _roles(spec).lone):
            return spec


def needle_questions(spec: VideoSpec, count: int, seed: int) -> list[Question]:
    """`count` different questions about a video of `needle_spec`, all kinds in equal shares and in random order.

    Two may ask the same with other options. A function of the arguments only.

    Raises:
        ValueError: the video does not allow so many different questions.
    """
    rng = random.Random(f"needle/{spec.seed}/{seed}")
    first = rng.randrange(len(NEEDLE_KINDS))
    kinds = [NEEDLE_KINDS[(first + number) % len(NEEDLE_KINDS)] for number in range(count)]
    rng.shuffle(kinds)
    questions: dict[str, Question] = {}
    for kind in kinds:
        for _ in range(_PATIENCE):
            question = _MAKERS[kind](rng, spec)
            if question.text not in questions:
                questions[question.text] = question
                break
        else:
            raise ValueError(f"found only {len(questions)} of {count} different questions about {spec}; ask for fewer")
    return list(questions.values())


# ---------------------------------------------------------------------------------------------------------- questions


def _direct(rng: random.Random, spec: VideoSpec) -> Question:
    clue = rng.choice(_roles(spec).clues)
    frame = _initial_frame_of(spec, clue)
    wrong = rng.sample([label for label in LABELS if label != clue.label], 3)
    return lettered_question(rng, "direct", f"What is shown in frame {frame}?", clue.label, wrong, ((frame, frame),))


def _at_time(rng: random.Random, spec: VideoSpec) -> Question:
    roles = _roles(spec)
    needles = [event for event in (roles.between, *roles.pair) if _seconds_to_ask(spec, event)]
    lone = not needles or rng.random() < _LONE_SHARE
    event = roles.lone if lone else rng.choice(needles)
    second = rng.choice(_seconds_to_ask(spec, event))
    clock = f"{second // 60}:{second % 60:02d}"
    window = (second * spec.fps, second * spec.fps + AT_TIME_FRAMES)
    if lone:  # its shape is nobody else's, so options of other shapes would give it away
        shape = event.label.split()[1]
        wrong = [label for colour in COLOURS if (label := f"{colour} {shape}") != event.label]
    else:
        wrong = _wrong(rng, spec, event.label)
    return lettered_question(rng, "at_time", f"What is shown at {clock}?", event.label, wrong, (window,), clock)


def _between_things(rng: random.Random, spec: VideoSpec) -> Question:
    one, two = _roles(spec).clues
    start, end = _initial_frame_of(spec, one), _initial_frame_of(spec, two)
    truth = _roles(spec).between.label
    text = f"What is shown between the {one.label} and the {two.label}?"
    return lettered_question(rng, "between_things", text, truth, _wrong(rng, spec, truth), ((start, end),))


def _order(rng: random.Random, spec: VideoSpec) -> Question:
    one, two = _roles(spec).pair
    margin = max(CLEARANCE_FRAMES, spec.num_frames // 40)
    before, after = initial_frames_around(spec, one.start_frame, two.end_frame)
    start = rng.randrange(max(before, one.start_frame - margin), one.start_frame)
    end = rng.randrange(two.end_frame + 1, min(after, two.end_frame + margin) + 1)
    which = rng.choice(("first", "last"))
    truth, trap = (one.label, two.label) if which == "first" else (two.label, one.label)
    text = f"What is shown {which} between frames {start} and {end}?"
    return lettered_question(rng, "order", text, truth, _wrong(rng, spec, truth, trap), ((start, end),))


_MAKERS: dict[Kind, Callable[[random.Random, VideoSpec], Question]] = {
    "direct": _direct,
    "at_time": _at_time,
    "between_things": _between_things,
    "order": _order,
}


def _wrong(rng: random.Random, spec: VideoSpec, truth: str, trap: str | None = None) -> list[str]:
    """Three other things: `trap` and things drawn like the needles, that is neither a clue nor of the lone's shape."""
    roles = _roles(spec)
    taken = {truth, trap, *(clue.label for clue in roles.clues)}
    others = [label for label in _of_other_shapes(roles.lone.label) if label not in taken]
    return [trap, *rng.sample(others, 2)] if trap else rng.sample(others, 3)


def _seconds_to_ask(spec: VideoSpec, event: Event) -> list[int]:
    """Seconds to ask about: the event goes on for another second, and nothing else follows in the window."""
    seconds = range(-(-event.start_frame // spec.fps), (event.end_frame - spec.fps) // spec.fps + 1)
    others = [other for other in spec.events if other != event]
    return [
        second
        for second in seconds
        if (last := second * spec.fps + AT_TIME_FRAMES) < spec.num_frames
        and not any(other.start_frame <= last and second * spec.fps <= other.end_frame for other in others)
    ]


# ------------------------------------------------------------------------------------------------------------- events


def _roles(spec: VideoSpec) -> _Roles:
    initial_frames = default_initial_frames(spec.num_frames)
    clues = [event for event in spec.events if not is_hidden(event, spec.num_frames)]
    one, two = clues
    events_of_gap: dict[int, list[Event]] = {}
    for event in spec.events:
        if event not in clues:
            events_of_gap.setdefault(sum(frame < event.start_frame for frame in initial_frames), []).append(event)
    (between,) = events_of_gap.pop(sum(frame <= one.end_frame for frame in initial_frames))
    (lone,), pair = sorted(events_of_gap.values(), key=len)
    return _Roles((one, two), between, (pair[0], pair[1]), lone)


def _initial_frame_of(spec: VideoSpec, clue: Event) -> int:
    """The initial frame that shows a clue."""
    return next(f for f in default_initial_frames(spec.num_frames) if clue.start_frame <= f <= clue.end_frame)


def initial_frames_around(spec: VideoSpec, start: int, end: int) -> tuple[int, int]:
    """The last initial frame before `start`, and the first after `end`."""
    frames = default_initial_frames(spec.num_frames)
    return max(frame for frame in frames if frame < start), min(frame for frame in frames if frame > end)


def event_length(rng: random.Random, num_frames: int) -> int:
    shortest = max(_MIN_EVENT_FRAMES, int(num_frames * _SHORTEST_SHARE))
    return rng.randint(shortest, max(shortest, int(num_frames * _LONGEST_SHARE)))


def _around(rng: random.Random, frame: int, length: int) -> tuple[int, int]:
    """First and last frame of an event that shows `frame`, and frames on both sides of it."""
    start = frame - rng.randint(CLEARANCE_FRAMES, length - 1 - CLEARANCE_FRAMES)
    return start, start + length - 1


def placed_between(rng: random.Random, before: int, after: int, lengths: list[int]) -> list[tuple[int, int]]:
    """First and last frames of events of these lengths, in this order, strictly between two frames."""
    slack = after - before + 1 - sum(lengths) - CLEARANCE_FRAMES * (len(lengths) + 1)
    places = []
    end = before
    for length in lengths:
        skipped = rng.randint(0, slack)
        slack -= skipped
        start = end + CLEARANCE_FRAMES + skipped
        end = start + length - 1
        places.append((start, end))
    return places


def _of_other_shapes(label: str) -> list[str]:
    return [other for other in LABELS if other.split()[1] != label.split()[1]]
