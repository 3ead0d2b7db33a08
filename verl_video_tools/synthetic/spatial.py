"""NeedleClips in space: videos whose questions take a part of the video, and then a part of one of its frames.

A video of 1 to 5 minutes has three events, which no initial frame shows. During each a card is seen at one of four
places (`synthetic.cards`). A question names a part of the video in which there is one card, and asks for the thing on
it:

    on_card   What is on the card between frames 61 and 83?

A frame of 28 x 28 pixels shows that a card is there, and where, but not what is on it: the small picture is the same
for all things. The window of the card (`synthetic.cards.window_of`), cut out of the video's own pixels, shows the thing
as frames of the other worlds do. Things are drawn without regard to each other, and so are the options that are not
true: who has not seen the window cannot do better than 25 %.
"""

from __future__ import annotations

import random

from verl_video_tools.synthetic.cards import Place, place_of
from verl_video_tools.synthetic.needle import (
    CLEARANCE_FRAMES,
    MIN_SECONDS,
    NEEDLE_FPS,
    event_length,
    placed_between,
)
from verl_video_tools.synthetic.questions import Kind, Question, lettered_question
from verl_video_tools.synthetic.spec import first_look_frames
from verl_video_tools.synthetic.world import LABELS, Event, VideoSpec, event_at

MAX_SECONDS = 300
NUM_CARDS = 3
SPATIAL_KINDS: tuple[Kind, ...] = ("on_card",)


def spatial_spec(seed: int) -> VideoSpec:
    """A video of 1 to 5 minutes with three cards, each alone between two initial frames; a function of `seed` only."""
    rng = random.Random(f"spatial/{seed}")
    num_frames = rng.randrange(MIN_SECONDS * NEEDLE_FPS, MAX_SECONDS * NEEDLE_FPS + 1)
    looks = first_look_frames(num_frames)
    events = []
    for stretch in sorted(rng.sample(range(len(looks) - 1), NUM_CARDS)):
        ((start, end),) = placed_between(rng, looks[stretch], looks[stretch + 1], [event_length(rng, num_frames)])
        events.append(Event(start, end, rng.choice(LABELS)))
    return VideoSpec(seed, NEEDLE_FPS, num_frames, tuple(events), world="spatial")


def spatial_questions(spec: VideoSpec, count: int, seed: int) -> list[Question]:
    """`count` different questions about a video of `spatial_spec`; a function of the arguments only.

    Two may ask the same with other options: there are over ten thousand choices of options for each part of the video.
    """
    rng = random.Random(f"spatial/{spec.seed}/{seed}")
    questions: dict[str, Question] = {}
    while len(questions) < count:
        question = _on_card(rng, spec)
        questions[question.text] = question
    return list(questions.values())


def card_at(spec: VideoSpec, frame_index: int) -> tuple[Place, str] | None:
    """Where frame `frame_index` shows a card, and the thing on it; None where it shows none.

    Raises:
        IndexError: the video has no such frame.
    """
    found = event_at(spec, frame_index)
    return None if found is None else (place_of(spec, found[0]), found[1].label)


def _on_card(rng: random.Random, spec: VideoSpec) -> Question:
    event = rng.choice(spec.events)
    looks = first_look_frames(spec.num_frames)
    before = max(frame for frame in looks if frame < event.start_frame)
    after = min(frame for frame in looks if frame > event.end_frame)
    start = rng.randint(before, event.start_frame - CLEARANCE_FRAMES)
    end = rng.randint(event.end_frame + CLEARANCE_FRAMES, after)
    wrong = rng.sample([label for label in LABELS if label != event.label], 3)
    text = f"What is on the card between frames {start} and {end}?"
    return lettered_question(rng, "on_card", text, event.label, wrong, ((start, end),))
