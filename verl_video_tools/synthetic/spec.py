"""Random videos: events placed so that most of them fall between uniform initial frames."""

from __future__ import annotations

import random

import numpy as np

from verl_video_tools.synthetic.world import FPS, LABELS, Event, VideoSpec

FIRST_LOOK_FRAMES = 8
MIN_EVENT_FRAMES, MAX_EVENT_FRAMES = 15, 25
MIN_GAP_FRAMES = 16
"""Least distance between events: a look of 8 frames over up to 100 frames then hits every event and every gap."""

MARGIN_FRAMES = 14
"""Least distance of events from both ends of the video, so that a window fits around each."""

_VISIBLE_SHARE = 0.75  # videos with one event that the initial frames show
_REPEAT_SHARE = (
    0.4  # of the videos with two hidden events near each other: both show the same, for questions that count
)
_NEAR_FRAMES = 74  # from the start of one to the end of the next, so that one window holds both
_NEIGHBOUR_SHARE = 0.7  # chance that a hidden event follows soon after the one before, for questions about two


def first_look_frames(num_frames: int) -> list[int]:
    """Numbers of uniform initial frames: `linspace(0, num_frames - 1, FIRST_LOOK_FRAMES)`, truncated."""
    return [int(index) for index in np.linspace(0, num_frames - 1, FIRST_LOOK_FRAMES)]


def is_hidden(event: Event, num_frames: int) -> bool:
    """Whether no initial frame shows `event`."""
    return not any(event.start_frame <= frame <= event.end_frame for frame in first_look_frames(num_frames))


def random_spec(seed: int) -> VideoSpec:
    """A video of 40 to 120 seconds with 2 to 5 events, at least one of them hidden; a function of `seed` only."""
    rng = random.Random(seed)
    while True:
        num_frames = rng.randrange(40 * FPS, 120 * FPS + 1)
        wanted = rng.randrange(2, 2 + min(4, num_frames // 80))
        visible = rng.random() < _VISIBLE_SHARE
        events = _place_events(rng, num_frames, wanted, visible)
        if events is not None:
            return VideoSpec(seed, FPS, num_frames, _with_labels(rng, events, num_frames))


def _place_events(rng: random.Random, num_frames: int, wanted: int, visible: bool) -> list[tuple[int, int]] | None:
    """Start and end frames in order of time, or None where luck left no room."""
    placed: list[tuple[int, int]] = []
    for _ in range(200):
        if len(placed) == wanted:
            return sorted(placed)
        length = rng.randrange(MIN_EVENT_FRAMES, MAX_EVENT_FRAMES + 1)
        if len(placed) > int(visible) and rng.random() < _NEIGHBOUR_SHARE:
            start = placed[-1][1] + rng.randrange(MIN_GAP_FRAMES + 1, 40)
        else:
            start = rng.randrange(MARGIN_FRAMES, num_frames - length - MARGIN_FRAMES)
        end = start + length - 1
        must_show = visible and not placed
        clear = all(end + MIN_GAP_FRAMES < other or start > last + MIN_GAP_FRAMES for other, last in placed)
        fits = end < num_frames - MARGIN_FRAMES and clear
        if fits and is_hidden(Event(start, end, LABELS[0]), num_frames) != must_show:
            placed.append((start, end))
    return None


def _with_labels(rng: random.Random, places: list[tuple[int, int]], num_frames: int) -> tuple[Event, ...]:
    """Different things, except that two hidden neighbours are now and then the same thing twice."""
    labels = rng.sample(LABELS, len(places))
    hidden = [is_hidden(Event(start, end, LABELS[0]), num_frames) for start, end in places]
    near = [
        first
        for first in range(len(places) - 1)
        if hidden[first] and hidden[first + 1] and places[first + 1][1] - places[first][0] <= _NEAR_FRAMES
    ]
    if near and rng.random() < _REPEAT_SHARE:
        first = rng.choice(near)
        labels[first + 1] = labels[first]
    return tuple(Event(start, end, label) for (start, end), label in zip(places, labels, strict=True))
