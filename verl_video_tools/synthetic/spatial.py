"""NeedleClips in space: videos whose questions take a part of the video, and then a part of one of its frames.

A video of 1 to 5 minutes has three events, which no initial frame shows. During each a card is seen at one of four
places. A question names a part of the video in which there is one card, and asks for the thing on it:

    on_card   What is on the card between frames 61 and 83?

A frame of 28 x 28 pixels shows that a card is there, and where, but not what is on it: the small picture is the same
for all things. The window of the card (`window_of`), cut out of the pixels of the video, shows the thing as frames of
the other worlds do. Things are drawn without regard to each other, and so are the options that are not true: who has
not seen the window cannot do better than 25 %.

A frame has 784 x 784 pixels. Where it is shown at 28 x 28, each pixel is the mean of a block of 28 x 28 (frames are
shrunk by area averaging, `video.frame_converter`). A card is a bright square of 13 x 13 blocks that fills one of the
frame's four quarters. The block in its middle, the dot, is a grey pixel in a small frame. It shows a thing in a
window of 16 x 16 pixels, drawn as `synthetic.world` draws it. A ring of pixels around the window makes the block's mean
the same grey whichever thing it is, exact to the last bit.

So are small frames of the compressed and decoded video (tests/synthetic/test_cards.py), for which it takes more. A
margin around the ring is grey as well: the codec stores colours at half the resolution, and would else spread the
ring's over neighbouring blocks. The ring is grained, so that rounding of its pixels to the codec's colours averages
out, and the codec quantises little. The grey's own luma is all but a whole number, so that what errors are left do not
change how it is rounded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from verl_video_tools.synthetic.needle import (
    CLEARANCE_FRAMES,
    MIN_SECONDS,
    NEEDLE_FPS,
    event_length,
    initial_frames_around,
    placed_between,
)
from verl_video_tools.synthetic.questions import Kind, Question, lettered_question
from verl_video_tools.synthetic.world import (
    COLOURS,
    LABELS,
    SPATIAL_SIDE_PIXELS,
    Event,
    VideoSpec,
    default_initial_frames,
    event_at,
    shape_mask,
    write_frames,
)

if TYPE_CHECKING:
    from av import VideoFrame

MAX_SECONDS = 300
NUM_CARDS = 3
SPATIAL_KINDS: tuple[Kind, ...] = ("on_card",)

Place = Literal["top left", "top right", "bottom left", "bottom right"]
PLACES: tuple[Place, ...] = ("top left", "top right", "bottom left", "bottom right")

SMALL_SIDE_PIXELS = 28
"""Of a frame in which nothing can be read."""
BLOCK_PIXELS = SPATIAL_SIDE_PIXELS // SMALL_SIDE_PIXELS
WINDOW_PIXELS = 16

_MIDDLE_BLOCKS = (6, 20)  # of a card, in the first and in the second half of a row or column
_CARD_BLOCKS = 13
_MARGIN_PIXELS = 2
_INSET_PIXELS = (BLOCK_PIXELS - WINDOW_PIXELS) // 2
_SUBPIXELS = 8  # of a pixel's side, for soft edges
_DRAWN_SIDE = 56  # of the pictures in which sizes are as in `synthetic.world`
_CARD_LEVEL = 225
_GREY_LEVEL = 120  # luma 119.06 of the codec's 16 to 235
_GRAIN_LEVELS = 8
# Key frames come so often that a call decodes few other frames.
_ENCODER_OPTIONS = {"preset": "ultrafast", "qp": "4", "x264-params": "keyint=16"}


def spatial_spec(seed: int) -> VideoSpec:
    """A video of 1 to 5 minutes with three cards, each alone between two initial frames; a function of `seed` only."""
    rng = random.Random(f"spatial/{seed}")
    num_frames = rng.randrange(MIN_SECONDS * NEEDLE_FPS, MAX_SECONDS * NEEDLE_FPS + 1)
    initial_frames = default_initial_frames(num_frames)
    events = []
    for gap in sorted(rng.sample(range(len(initial_frames) - 1), NUM_CARDS)):
        ((start, end),) = placed_between(
            rng, initial_frames[gap], initial_frames[gap + 1], [event_length(rng, num_frames)]
        )
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
    numbered_event = event_at(spec, frame_index)
    return None if numbered_event is None else (place_of(spec, numbered_event[0]), numbered_event[1].label)


def _on_card(rng: random.Random, spec: VideoSpec) -> Question:
    event = rng.choice(spec.events)
    before, after = initial_frames_around(spec, event.start_frame, event.end_frame)
    start = rng.randint(before, event.start_frame - CLEARANCE_FRAMES)
    end = rng.randint(event.end_frame + CLEARANCE_FRAMES, after)
    wrong = rng.sample([label for label in LABELS if label != event.label], 3)
    text = f"What is on the card between frames {start} and {end}?"
    return lettered_question(rng, "on_card", text, event.label, wrong, ((start, end),))


# ------------------------------------------------------------------------------------------------------------ pictures


class Window(NamedTuple):
    """Pixels of a frame that show a thing: columns from `left` to the one before `right`, rows likewise."""

    left: int
    top: int
    right: int
    bottom: int


def window_of(place: Place) -> Window:
    """Where a card at that place has its thing."""
    row, column = _middle_block(place)
    left, top = (block * BLOCK_PIXELS + _INSET_PIXELS for block in (column, row))
    return Window(left, top, left + WINDOW_PIXELS, top + WINDOW_PIXELS)


def place_of(spec: VideoSpec, number: int) -> Place:
    """Where the card of event `number` is."""
    return PLACES[int(np.random.default_rng((spec.seed, 2, number)).integers(len(PLACES)))]


def picture_at(spec: VideoSpec, frame_index: int) -> np.ndarray:
    """Frame `frame_index` of a spatial video before compression: uint8, height x width x RGB, 784 x 784 x 3.

    Raises:
        IndexError: the video has no such frame.
    """
    image_HWC = np.empty((SPATIAL_SIDE_PIXELS, SPATIAL_SIDE_PIXELS, 3), np.uint8)
    image_HWC[:] = np.random.default_rng((spec.seed, 4)).integers(30, 59, 3)
    numbered_event = event_at(spec, frame_index)
    if numbered_event is not None:
        number, event = numbered_event
        row, column = _middle_block(place_of(spec, number))
        half = _CARD_BLOCKS // 2
        image_HWC[_pixels(row - half, row + half), _pixels(column - half, column + half)] = _CARD_LEVEL
        image_HWC[_pixels(row, row), _pixels(column, column)] = dot(spec.seed, number, event.label)
    return image_HWC


def dot(seed: int, number: int, label: str) -> np.ndarray:
    """The middle block of the card of event `number`: uint8, 28 x 28 x 3.

    Each channel's mean is the same for all blocks, and only pixels of the window and the ring around it differ.
    """
    rng = np.random.default_rng((seed, 3, number))
    window_HWC = _thing(rng, label)
    inner_side = BLOCK_PIXELS - 2 * _MARGIN_PIXELS
    num_ring = inner_side**2 - WINDOW_PIXELS**2
    ring_NC = _adding_up_to(_GREY_LEVEL * inner_side**2 - window_HWC.sum((0, 1)), num_ring, rng)
    block_HWC = np.full((BLOCK_PIXELS, BLOCK_PIXELS, 3), _GREY_LEVEL)
    in_ring_HW = np.zeros((BLOCK_PIXELS, BLOCK_PIXELS), bool)
    in_ring_HW[_MARGIN_PIXELS:-_MARGIN_PIXELS, _MARGIN_PIXELS:-_MARGIN_PIXELS] = True
    window = slice(_INSET_PIXELS, _INSET_PIXELS + WINDOW_PIXELS)
    in_ring_HW[window, window] = False
    block_HWC[in_ring_HW] = ring_NC
    block_HWC[window, window] = window_HWC
    return block_HWC.astype(np.uint8)


def render_cards(spec: VideoSpec, path: str | Path) -> None:
    """Writes a spatial video to `path` as H.264 (libx264), yuv420p, constant frame rate, no audio.

    Raises:
        av.error.FFmpegError: the file could not be written, or FFmpeg has no libx264.
    """
    write_frames(spec, path, _frames(spec), _ENCODER_OPTIONS)


def _frames(spec: VideoSpec) -> Iterator[VideoFrame]:
    from av import VideoFrame  # heavy; the rest of this file needs only numpy

    drawn_event: Event | None = None
    frame: VideoFrame | None = None
    for index in range(spec.num_frames):
        numbered_event = event_at(spec, index)
        event = None if numbered_event is None else numbered_event[1]
        if frame is None or event != drawn_event:  # pictures stand still, and drawing one costs as much as encoding it
            picture = VideoFrame.from_ndarray(picture_at(spec, index), format="rgb24")
            frame, drawn_event = picture.reformat(format="yuv420p"), event
        frame.pts = index
        yield frame


def _adding_up_to(total_C: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Grained pixels of one colour with this sum, int64 `count` x 3; `count` is even."""
    pixels_NC = np.repeat(total_C[None] // count, count, axis=0)
    pixels_NC += np.arange(count)[:, None] < total_C % count
    grain_NC = rng.integers(-_GRAIN_LEVELS, _GRAIN_LEVELS + 1, (count // 2, 3))
    return rng.permutation(pixels_NC + np.concatenate([grain_NC, -grain_NC]))


def _thing(rng: np.random.Generator, label: str) -> np.ndarray:
    """A window's pixels, int64 16 x 16 x 3; size, place, tint and background are drawn alike for all labels."""
    colour, shape = label.split()
    size = int(rng.integers(36, 49))
    top, left = rng.integers(2, _DRAWN_SIDE - size - 1, 2)
    tint_C = rng.integers(-15, 16, 3)
    background_C = rng.uniform(30, 58, 3)
    side = WINDOW_PIXELS * _SUBPIXELS
    scale = side / _DRAWN_SIDE
    mask_HW = shape_mask(shape, side, size * scale, top * scale, left * scale)
    covered_HW1 = mask_HW.reshape(WINDOW_PIXELS, _SUBPIXELS, WINDOW_PIXELS, _SUBPIXELS).mean((1, 3))[..., None]
    thing_C = np.asarray(COLOURS[colour]) + tint_C
    return np.rint(background_C * (1 - covered_HW1) + thing_C * covered_HW1).astype(np.int64)


def _middle_block(place: Place) -> tuple[int, int]:
    """Row and column of a card's middle among the blocks of a frame."""
    row, column = divmod(PLACES.index(place), 2)
    return _MIDDLE_BLOCKS[row], _MIDDLE_BLOCKS[column]


def _pixels(first_block: int, last_block: int) -> slice:
    return slice(first_block * BLOCK_PIXELS, (last_block + 1) * BLOCK_PIXELS)
