"""The synthetic world: short H.264 videos in which a large coloured shape appears for a few seconds at a time.

Everything is drawn from a seed, so a `VideoSpec` is a complete description of a video: its pixels (before compression)
and the truth about every frame follow from it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from av import VideoFrame

SIDE_PIXELS = 56
SPATIAL_SIDE_PIXELS = 784
"""Of the videos of `synthetic.spatial`."""
FPS = 5
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (225, 35, 35),
    "green": (40, 205, 60),
    "blue": (45, 75, 240),
    "yellow": (240, 225, 45),
}
SHAPES: tuple[str, ...] = ("circle", "square", "triangle", "cross")
LABELS: tuple[str, ...] = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)

DEFAULT_INITIAL_FRAMES = 8
MIN_EVENT_FRAMES, MAX_EVENT_FRAMES = 15, 25
MIN_GAP_FRAMES = 16
"""Minimum distance between events: 8 frames spread over up to 100 frames then meet every event and every gap."""

MARGIN_FRAMES = 14
"""Minimum distance of events from both ends of the video, so that a window fits around each."""

_VISIBLE_SHARE = 0.75  # videos with one event that the initial frames show
_REPEAT_SHARE = (
    0.4  # of the videos with two hidden events near each other: both show the same, for questions that count
)
_NEAR_FRAMES = 74  # from the start of one to the end of the next, so that one window holds both
_NEIGHBOUR_SHARE = 0.7  # chance that a hidden event follows soon after the one before, for questions about two

_NOISE_MARGIN = 40
# Without macroblock-tree rate control: with it, x264's output differs now and then between runs at this picture size.
_ENCODER_OPTIONS = {"preset": "veryfast", "x264-params": "no-mbtree=1"}


@dataclass(frozen=True)
class Event:
    """One thing, visible from `start_frame` to `end_frame`, both inclusive and 0-based; `label` as in `LABELS`."""

    start_frame: int
    end_frame: int
    label: str


@dataclass(frozen=True)
class VideoSpec:
    """A whole video: `num_frames` frames at `fps` frames per second, events ordered in time and not overlapping.

    `world` says whose questions fit it: `synthetic.questions` (short), `synthetic.needle` or `synthetic.spatial`.

    Raises:
        ValueError: events overlap, are out of order, leave the video, or carry an unknown label.
    """

    seed: int
    fps: int
    num_frames: int
    events: tuple[Event, ...]
    world: Literal["short", "needle", "spatial"] = "short"

    def __post_init__(self) -> None:
        previous_end = -1
        for event in self.events:
            if not previous_end < event.start_frame <= event.end_frame < self.num_frames:
                raise ValueError(
                    f"event {event} overlaps another, is out of order, or leaves a video of {self.num_frames} frames; "
                    "give events in order of time, without overlap"
                )
            if event.label not in LABELS:
                raise ValueError(f"unknown label {event.label!r}; choose one of {LABELS}")
            previous_end = event.end_frame

    @property
    def duration_seconds(self) -> float:
        return self.num_frames / self.fps

    @property
    def side_pixels(self) -> int:
        """Width and height of a frame."""
        return SPATIAL_SIDE_PIXELS if self.world == "spatial" else SIDE_PIXELS

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> VideoSpec:
        """The spec that `dataclasses.asdict` made this of, also after JSON."""
        return cls(**{**data, "events": tuple(Event(**event) for event in data["events"])})


def label_at(spec: VideoSpec, frame_index: int) -> str | None:
    """What frame `frame_index` (0-based) shows, or None where only the background is seen.

    Whole frames of the spatial world show no thing: it is too small to be read in them (`synthetic.spatial.card_at`).

    Raises:
        IndexError: the video has no such frame.
    """
    event = event_at(spec, frame_index)
    return None if event is None or spec.world == "spatial" else event[1].label


def frames_at(spec: VideoSpec, seconds: Iterable[float], rounding: Literal["nearest", "shown"] = "shown") -> list[int]:
    """Numbers of the frames that these times mean; the end of the video gives the last frame."""
    offset = 0.5 + 1e-6 if rounding == "nearest" else 0.0  # half way the later one
    return [min(int(time * spec.fps + offset), spec.num_frames - 1) for time in seconds]


def frame_pixels(spec: VideoSpec, frame_index: int) -> np.ndarray:
    """Frame `frame_index` before compression: uint8, height x width x RGB, 56 x 56 x 3; not of the spatial world, whose
    pictures are `synthetic.spatial.picture_at`.

    Raises:
        IndexError: the video has no such frame.
    """
    image_HWC = _background(spec.seed, frame_index)
    numbered_event = event_at(spec, frame_index)
    if numbered_event is not None:
        number, event = numbered_event
        colour, shape = event.label.split()
        mask_HW, tint = _thing(spec.seed, number, shape)
        image_HWC[mask_HW] = np.asarray(COLOURS[colour], np.int16) + tint
        image_HWC += _noise(spec.seed, frame_index + 1) // 2
    return np.clip(image_HWC, 0, 255).astype(np.uint8)


def render(spec: VideoSpec, path: str | Path) -> None:
    """Writes the video to `path` as H.264 (libx264, with B-frames), yuv420p, constant frame rate, no audio.

    Raises:
        av.error.FFmpegError: the file could not be written, or FFmpeg has no libx264.
    """
    from av import VideoFrame  # heavy; the rest of this file needs only numpy

    pictures = (frame_pixels(spec, index) for index in range(spec.num_frames))
    frames = (VideoFrame.from_ndarray(picture, format="rgb24") for picture in pictures)
    write_frames(spec, path, frames, _ENCODER_OPTIONS)


def write_frames(spec: VideoSpec, path: str | Path, frames: Iterable[VideoFrame], options: dict[str, str]) -> None:
    """Encode the frames of a video with libx264, one file for the same frames and options on one machine.

    Raises:
        av.error.FFmpegError: as `render`.
    """
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=spec.fps, options=options)
        stream.width = stream.height = spec.side_pixels
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1
        for frame in frames:
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def event_at(spec: VideoSpec, frame_index: int) -> tuple[int, Event] | None:
    """The event that a frame belongs to, and its number among the video's; None where there is none.

    Raises:
        IndexError: the video has no such frame.
    """
    if not 0 <= frame_index < spec.num_frames:
        raise IndexError(f"frame {frame_index} of a video with frames 0 to {spec.num_frames - 1}")
    for number, event in enumerate(spec.events):
        if event.start_frame <= frame_index <= event.end_frame:
            return number, event
    return None


@lru_cache(maxsize=8)
def _scene(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noise field, gradient directions (2 x RGB) and base brightness of one video's background."""
    rng = np.random.default_rng((seed, 0))
    side = SIDE_PIXELS + _NOISE_MARGIN
    noise_HWC = rng.integers(-9, 10, (side, side, 3)).astype(np.int16)
    return noise_HWC, rng.uniform(-14, 14, (2, 3)), rng.uniform(30, 58, 3)


def _noise(seed: int, frame_index: int) -> np.ndarray:
    """A fresh-looking window of the video's noise field: cheaper than drawing new numbers for each frame."""
    row, column = (frame_index * 7) % _NOISE_MARGIN, (frame_index * 13) % _NOISE_MARGIN
    return _scene(seed)[0][row : row + SIDE_PIXELS, column : column + SIDE_PIXELS]


def _background(seed: int, frame_index: int) -> np.ndarray:
    _, slope, base = _scene(seed)
    drift = np.array([np.sin(frame_index / 60), np.cos(frame_index / 45)])
    axis = np.linspace(-1, 1, SIDE_PIXELS)
    rows_HC = axis[:, None] * slope[0] * drift[0]
    columns_WC = axis[:, None] * slope[1] * drift[1]
    smooth_HWC = base + rows_HC[:, None] + columns_WC[None]
    return smooth_HWC.astype(np.int16) + _noise(seed, frame_index)


@lru_cache(maxsize=256)
def _thing(seed: int, number: int, shape: str) -> tuple[np.ndarray, np.ndarray]:
    """Mask (height x width) and colour shift of event `number`: 36 to 48 pixels wide, at any place that fits."""
    rng = np.random.default_rng((seed, 1, number))
    size = int(rng.integers(36, 49))
    top, left = rng.integers(2, SIDE_PIXELS - size - 1, 2)
    return shape_mask(shape, SIDE_PIXELS, size, top, left), rng.integers(-15, 16, 3).astype(np.int16)


def shape_mask(shape: str, side: int, size: float, top: float, left: float) -> np.ndarray:
    """Which pixels of a square picture a shape covers, `side` x `side` booleans.

    Args:
        size: width and height of the shape in pixels.
        top, left: where it begins, in pixels.
    """
    rows, columns = np.mgrid[0:side, 0:side]
    half = size / 2
    y, x = rows - (top + half - 0.5), columns - (left + half - 0.5)  # from the centre of the shape
    mask_HW: np.ndarray
    if shape == "circle":
        mask_HW = x**2 + y**2 <= half**2
    elif shape == "square":
        mask_HW = (abs(x) <= half) & (abs(y) <= half)
    elif shape == "triangle":  # upright, tip at the top
        mask_HW = (abs(y) <= half) & (abs(x) <= (y + half) / 2)
    else:
        mask_HW = ((abs(x) <= size / 7) & (abs(y) <= half)) | ((abs(y) <= size / 7) & (abs(x) <= half))
    return mask_HW


# -------------------------------------------------------------------------------------------------------- random videos


def default_initial_frames(num_frames: int) -> list[int]:
    """Numbers of uniform initial frames: `linspace(0, num_frames - 1, DEFAULT_INITIAL_FRAMES)`, truncated."""
    return [int(index) for index in np.linspace(0, num_frames - 1, DEFAULT_INITIAL_FRAMES)]


def is_hidden(event: Event, num_frames: int) -> bool:
    """Whether no initial frame shows `event`."""
    return not any(event.start_frame <= frame <= event.end_frame for frame in default_initial_frames(num_frames))


def random_spec(seed: int) -> VideoSpec:
    """A video of 40 to 120 seconds with 2 to 5 events, at least one of them hidden; a function of `seed` only."""
    rng = random.Random(seed)
    while True:
        num_frames = rng.randrange(40 * FPS, 120 * FPS + 1)
        num_events = rng.randrange(2, 2 + min(4, num_frames // 80))
        visible = rng.random() < _VISIBLE_SHARE
        events = _place_events(rng, num_frames, num_events, visible)
        if events is not None:
            return VideoSpec(seed, FPS, num_frames, _with_labels(rng, events, num_frames))


def _place_events(rng: random.Random, num_frames: int, num_events: int, visible: bool) -> list[tuple[int, int]] | None:
    """Start and end frames in order of time, or None where luck left no room."""
    placed: list[tuple[int, int]] = []
    for _ in range(200):
        if len(placed) == num_events:
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
