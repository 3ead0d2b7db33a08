"""What rollouts ask of a video: single frames, windows, uniform looks, and the requests of a whole group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WIDTH, HEIGHT = 588, 336
"""Size of every frame: what `max_pixels` 200704 makes of 16:9."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of request: frames `step_seconds` apart at a random place, or spread over the file if that is None."""

    name: str
    num_frames: int
    step_seconds: float | None


SHAPES = (
    Shape("S1", 1, 0.0),
    Shape("W4", 4, 1.0),
    Shape("W16", 16, 0.5),
    Shape("W32", 32, 1.0),
    Shape("U8", 8, None),
    Shape("U32", 32, None),
    Shape("U128", 128, None),
)


@dataclass(frozen=True, slots=True)
class Request:
    """Frames of one file, as times for those who look up times and as indices for those who cannot.

    At a constant frame rate both mean the same frames: each time is the middle of its frame's interval.
    """

    path: str
    seconds: tuple[float, ...]
    indices: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "seconds": self.seconds, "indices": self.indices}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Request:
        return cls(data["path"], tuple(data["seconds"]), tuple(data["indices"]))


def make_request(path: str, num_frames: int, fps: int, shape: Shape, rng: np.random.Generator) -> Request:
    """A request of a shape at a random place of a file with a constant frame rate."""
    if shape.step_seconds is None:
        indices = np.linspace(0, num_frames - 1, shape.num_frames).round().astype(int)
    else:
        offsets = (np.arange(shape.num_frames) * shape.step_seconds * fps).round().astype(int)
        # Two frames more than it needs: qwen-vl-utils cannot read less than two.
        indices = rng.integers(0, num_frames - offsets[-1] - 1) + offsets
    return _at(path, indices.tolist(), fps)


def _at(path: str, indices: Sequence[int], fps: int) -> Request:
    return Request(path, tuple((index + 0.5) / fps for index in indices), tuple(indices))


WINDOWS_PER_ROLLOUT = 3
JITTER_SECONDS = 10.0


def group_trace(path: str, num_frames: int, fps: int, num_rollouts: int, seed: int) -> list[list[Request]]:
    """The requests of `num_rollouts` rollouts that answer one question, in the order of each rollout.

    Each looks at 32 frames of the whole video and then, three times, at 16 frames in 8 seconds that begin within 10
    seconds of the same evidence.
    """
    rng = np.random.default_rng(seed)
    whole, window = SHAPES[5], SHAPES[2]
    assert window.step_seconds is not None
    overview = make_request(path, num_frames, fps, whole, rng)
    margin_seconds = JITTER_SECONDS + window.num_frames * window.step_seconds
    evidence_seconds = rng.uniform(margin_seconds, num_frames / fps - margin_seconds)
    rollouts = []
    for _ in range(num_rollouts):
        requests = [overview]
        for _ in range(WINDOWS_PER_ROLLOUT):
            start_seconds = evidence_seconds + rng.uniform(-JITTER_SECONDS, JITTER_SECONDS)
            times = start_seconds + np.arange(window.num_frames) * window.step_seconds
            requests.append(_at(path, np.floor(times * fps).astype(int).tolist(), fps))
        rollouts.append(requests)
    return rollouts
