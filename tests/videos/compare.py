"""Whether random access shows what one pass over a file shows, frame by frame and bit by bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.videos.reference import Reference
from verl_video_tools.core.types import FrameBatch
from verl_video_tools.video import Video

TIMES_PER_REQUEST = 12
SINGLE_FRAMES = 12


@dataclass(frozen=True, slots=True)
class Comparison:
    """Frames asked of one file and what was wrong with them: picture, index, time, or the flag for damage.

    Attributes:
        is_random_access: frames were reached by seeks, and not by decoding from the start.
        wrong: which request went wrong first, and how; None if none did.
    """

    asked: int
    num_wrong: int
    is_random_access: bool
    wrong: str | None


def compare(video: Video, reference: Reference, seed: int = 0) -> Comparison:
    """Ask for all frames; for random times, in order and not, with one twice; for single ones back and forth."""
    if (count := video.info.num_frames) != len(reference.pictures):
        return Comparison(0, 1, video.is_random_access, f"{count} frames instead of {len(reference.pictures)}")
    asked, wrongs = 0, []
    for seconds, batch in _requests(video, reference, random.Random(seed)):
        asked += len(seconds)
        for position, time in enumerate(seconds):
            if wrong := _wrong_frame(batch, position, reference, reference.index_at(time)):
                wrongs.append(f"at {time} s of {len(seconds)} times: {wrong}")
    return Comparison(asked, len(wrongs), video.is_random_access, wrongs[0] if wrongs else None)


def _requests(video: Video, reference: Reference, rng: random.Random) -> Iterator[tuple[list[float], FrameBatch]]:
    yield reference.timestamps_seconds, video.frames_at_indices(range(video.info.num_frames))
    times = [rng.uniform(0, video.info.duration_seconds) for _ in range(TIMES_PER_REQUEST)]
    for seconds in (sorted(times), [*times, times[0]], *([time] for time in times[:SINGLE_FRAMES])):
        yield seconds, video.frames_at(seconds)


def _wrong_frame(batch: FrameBatch, position: int, reference: Reference, index: int) -> str | None:
    if int(batch.indices[position]) != index:
        return f"frame {batch.indices[position]} instead of {index}"
    if float(batch.timestamps_seconds[position]) != reference.timestamps_seconds[index]:
        return f"time {batch.timestamps_seconds[position]} instead of {reference.timestamps_seconds[index]}"
    if batch.corrupt[position]:
        return "flagged as damaged"
    if not np.array_equal(batch.frames_THWC[position], reference.pictures[index]):
        return "another picture"
    return None
