"""Frames for pre-training: many short videos rendered, compressed, decoded again, with the truth per frame."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from verl_video_tools.synthetic.world import FPS, LABELS, Event, VideoSpec, label_at, render

NOTHING = len(LABELS)
"""Class number of a frame that shows only the background; the others are positions in `LABELS`."""


def class_name(class_number: int) -> str:
    """The words for a class: one of `LABELS`, or "nothing"."""
    return "nothing" if class_number == NOTHING else LABELS[class_number]


@dataclass(frozen=True)
class FramePool:
    """`frames_NHWC`: decoded frames, uint8, N x 56 x 56 x 3; `classes_N`: what each shows, int64, 0 to 16."""

    frames_NHWC: np.ndarray
    classes_N: np.ndarray

    def by_class(self) -> list[np.ndarray]:
        """For every class the positions of its frames in the pool."""
        return [np.flatnonzero(self.classes_N == number) for number in range(NOTHING + 1)]


def make_pool(num_videos: int, seed: int, num_frames: int = 400) -> FramePool:
    """Renders `num_videos` videos, crowded with brief events, and decodes them; content depends on `seed` only.

    Raises:
        RuntimeError: a decoded video has another number of frames than was encoded.
    """
    rng = random.Random(seed)
    frames: list[np.ndarray] = []
    classes: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        for _ in range(num_videos):
            spec = _crowded_spec(rng, num_frames)
            render(spec, path)
            decoded = decode_all(path)
            if len(decoded) != num_frames:
                raise RuntimeError(
                    f"encoded {num_frames} frames but decoded {len(decoded)}; is FFmpeg's libx264 intact?"
                )
            frames.extend(decoded)
            labels = (label_at(spec, index) for index in range(num_frames))
            classes.extend(NOTHING if label is None else LABELS.index(label) for label in labels)
    return FramePool(np.stack(frames), np.asarray(classes, np.int64))


def decode_all(path: str | Path) -> list[np.ndarray]:
    """All frames of a video in presentation order, each uint8 height x width x RGB."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def _crowded_spec(rng: random.Random, num_frames: int) -> VideoSpec:
    events: list[Event] = []
    start = rng.randrange(1, 20)
    while (end := start + rng.randrange(5, 16)) < num_frames:
        events.append(Event(start, end, rng.choice(LABELS)))
        start = end + rng.randrange(2, 10)
    return VideoSpec(rng.randrange(2**31), FPS, num_frames, tuple(events))
