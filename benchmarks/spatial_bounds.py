"""Bounds of NeedleClips' questions in space: what temporal tools alone can earn there, and what a zoom adds.

Whole frames are shown as the packaged composition `spatial` shows them, at 28 x 28 pixels. A reader is trained twice,
on whole frames and on windows of cards, each time on a thousand cards with their things told, from compressed and
decoded videos that are in no data set. It is kernel ridge regression on pixels, and it is told where the card is, so
that it has nothing else to find out. That no reader can do better than chance is held by tests/synthetic/test_cards.py:
small frames of two videos are the same, to the last bit, if the videos differ in nothing but the things on their cards.

    initial_frames  Answers at once. No initial frame shows a card, so it goes by how options compare with each other.
    temporal        The reader, of all frames that show the card: the best that tools can show
                    which choose frames by time.
    zoom            The same reader, of the card's window at 56 x 56 pixels, as a zoom shows it.
    expert          The scripted expert of the cold start, without imperfection, in `replay`: real loop, tools and
                    reward.

The readers' shares are means over all ways to choose three other things as options. Exits with 1 if `initial_frames` or
`temporal` earn more than 27 %, which is chance and two points, `zoom` less than 95 %, or the expert less than 100 %.

Usage: python -m benchmarks.spatial_bounds
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.needle_bounds import NUM_VIDEOS, Guesser, studied_seed, synthetic_settings
from verl_video_tools.data.sft import scripted_oracle
from verl_video_tools.data.synthetic_rows import load_rows, make_demo, question_from_row
from verl_video_tools.methods import get_method
from verl_video_tools.replay import replay
from verl_video_tools.synthetic.needle import NEEDLE_FPS
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.spatial import (
    SMALL_SIDE_PIXELS,
    card_at,
    render_cards,
    spatial_questions,
    spatial_spec,
    window_of,
)
from verl_video_tools.synthetic.world import LABELS, Event, VideoSpec
from verl_video_tools.video import Box, FrameRequest, Region, Video

CHANCE = 0.25
MOST_TEMPORAL = CHANCE + 0.02
LEAST_ZOOM = 0.95
ZOOMED_SIDE_PIXELS = 56

_CARDS_PER_VIDEO = 100
_CARD_FRAMES = 3
_HALF_CARD_PIXELS = 6
"""Of a small frame, from a card's middle to each side."""
_STUDIED_QUESTIONS = 20_000
_NUM_CARDS = 1000  # that the readers learn from, and as many to read
_QUESTIONS = 4  # about a video
_RIDGES = (1e-3, 1e-1, 10.0)


@dataclass(frozen=True)
class SeenCards:
    """Cards as tools show them.

    Attributes:
        small: the card in a whole frame at 28 x 28 pixels, mean over its frames: N x 13 x 13 x 3.
        windows: N x 56 x 56 x 3.
        labels: of what is on them, N positions in `LABELS`.
    """

    small: np.ndarray
    windows: np.ndarray
    labels: np.ndarray


def crowded_spec(seed: int, num_cards: int) -> VideoSpec:
    """A video of the spatial world in which one brief card follows another."""
    rng = random.Random(f"crowded/{seed}")
    step = _CARD_FRAMES + 1
    events = (Event(step * n + 1, step * (n + 1) - 1, rng.choice(LABELS)) for n in range(num_cards))
    return VideoSpec(seed, NEEDLE_FPS, step * num_cards + 1, tuple(events), world="spatial")


def see_cards(folder: Path, first: int, num_cards: int) -> SeenCards:
    """Cards of rendered videos; those of another `first` differ.

    Args:
        folder: for a video at a time.
        first: number of the first video; each has 100 cards.
    """
    parts = [
        _seen(crowded_spec(studied_seed(first + number), min(_CARDS_PER_VIDEO, num_cards - done)), folder)
        for number, done in enumerate(range(0, num_cards, _CARDS_PER_VIDEO))
    ]
    return SeenCards(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _seen(spec: VideoSpec, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    path = folder / f"cards_{spec.seed}.mp4"
    render_cards(spec, path)
    video = Video(path)
    frames_THWC = video.frames(whole_frames(range(spec.num_frames))).frames_THWC
    small, windows = [], []
    for event in spec.events:
        card = card_at(spec, event.start_frame)
        assert card is not None
        window = window_of(card[0])
        request = FrameRequest(
            width=ZOOMED_SIDE_PIXELS,
            height=ZOOMED_SIDE_PIXELS,
            indices=(event.start_frame,),
            region=Region(Box(*window)),
        )
        windows.append(video.frames(request).frames_THWC[0])
        row, column = (edge * SMALL_SIDE_PIXELS // spec.side_pixels for edge in (window.top, window.left))
        rows, columns = (slice(at - _HALF_CARD_PIXELS, at + _HALF_CARD_PIXELS + 1) for at in (row, column))
        small.append(frames_THWC[event.start_frame : event.end_frame + 1, rows, columns].mean(0))
    path.unlink()
    labels = [LABELS.index(event.label) for event in spec.events]
    return np.stack(small), np.stack(windows), np.asarray(labels)


def whole_frames(indices: Sequence[int]) -> FrameRequest:
    """Frames as tools show them that choose by time."""
    return FrameRequest(width=SMALL_SIDE_PIXELS, height=SMALL_SIDE_PIXELS, indices=tuple(indices))


class Reader:
    """Kernel ridge regression on the labels of pictures, with a Gaussian kernel on standardised pixels."""

    def __init__(self, pictures: np.ndarray, labels: np.ndarray, ridge: float) -> None:
        """Learn from pictures, N x H x W x 3, and what they show.

        Args:
            ridge: how little each single picture counts.
        """
        flat = pictures.reshape(len(pictures), -1).astype(np.float64)
        self._mean, self._spread = flat.mean(0), np.where(flat.std(0) > 0, flat.std(0), 1.0)
        self._known = (flat - self._mean) / self._spread
        self._width = np.median(_squared_distances(self._known[:200], self._known[:200])) or 1.0
        kernel = self._kernel(self._known) + ridge * np.eye(len(flat))
        truth = np.eye(len(LABELS))[labels] - 1 / len(LABELS)
        self._weights = np.linalg.solve(kernel, truth)

    def scores(self, pictures: np.ndarray) -> np.ndarray:
        """How much each picture looks like each label, N x 16."""
        flat = pictures.reshape(len(pictures), -1)
        return self._kernel((flat - self._mean) / self._spread) @ self._weights

    def _kernel(self, flat: np.ndarray) -> np.ndarray:
        return np.exp(-_squared_distances(flat, self._known) / self._width)


def best_reader(pictures: np.ndarray, labels: np.ndarray) -> Reader:
    """With the ridge that reads the last fifth of the pictures best after the others."""
    kept = len(labels) * 4 // 5

    def share(ridge: float) -> float:
        return share_right(Reader(pictures[:kept], labels[:kept], ridge).scores(pictures[kept:]), labels[kept:])

    return Reader(pictures, labels, max(_RIDGES, key=share))


def _squared_distances(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    squares = (some**2).sum(1)[:, None] + (others**2).sum(1)[None] - 2 * some @ others.T
    return np.maximum(squares, 0)


def share_right(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share of questions that a reader gets right who takes the option of the highest score, over all choices of three
    other options."""
    own = scores[np.arange(len(labels)), labels]
    beaten = (scores < own[:, None]).sum(1)
    choices = math.comb(len(LABELS) - 1, 3)
    return float(np.mean([math.comb(int(count), 3) / choices for count in beaten]))


def readers_shares(folder: Path, num_cards: int) -> dict[str, float]:
    """Shares of questions right by whole frames (`temporal`) and by windows (`zoom`); as many cards are learnt from as
    are asked about."""
    known = see_cards(folder, 0, num_cards)
    asked = see_cards(folder, math.ceil(num_cards / _CARDS_PER_VIDEO), num_cards)
    shares = {}
    for name, learnt, read in (("temporal", known.small, asked.small), ("zoom", known.windows, asked.windows)):
        shares[name] = share_right(best_reader(learnt, known.labels).scores(read), asked.labels)
    return shares


def initial_frames_share(num_questions: int) -> float:
    """Share of questions right by their options alone, after study of as many others.

    No video is rendered: initial frames without a card leave no more than the options.
    """
    asked = [_questions(range(first, first + num_questions // _QUESTIONS)) for first in (0, num_questions)]
    guesser = Guesser()
    for question in asked[0]:
        guesser.study(list(question.options.values()), question.options[question.answer], [])
    right = [
        guesser.guess(list(question.options.values()), []) == question.options[question.answer] for question in asked[1]
    ]
    return sum(right) / len(right)


def _questions(numbers: Iterable[int]) -> list[Question]:
    specs = (spatial_spec(studied_seed(number)) for number in numbers)
    return [question for spec in specs for question in spatial_questions(spec, _QUESTIONS, seed=0)]


def experts_share(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of rows that the scripted expert gets right, in `replay` of the composition `spatial`."""
    settings = {**synthetic_settings("compose"), "file": "spatial"}
    expert = scripted_oracle(get_method("compose", **settings))
    right = []
    for row in rows:
        extra, truth = row["extra_info"], row["reward_model"]["ground_truth"]
        turns = expert.script(*question_from_row(row)).turns
        result = replay("compose", extra["video_path"], extra["question"], truth, turns, extra, settings)
        right.append(result["reward"]["accuracy"] > 0.0)
    return sum(right) / len(right)


def main() -> int:
    """Command line: see the module's docstring."""
    folder = Path("outputs/bench_spatial")
    folder = make_demo(folder, 1, NUM_VIDEOS, _QUESTIONS, agent_names=["compose"], spatial=True)
    rows = load_rows(folder / "test.parquet")
    initial_frames, expert = initial_frames_share(_STUDIED_QUESTIONS), experts_share(rows)
    print(f"initial_frames {initial_frames:.3f} of {_STUDIED_QUESTIONS} questions")
    readers = readers_shares(folder, _NUM_CARDS)
    for name, share in readers.items():
        print(f"{name:11}{share:.3f} of the questions about {_NUM_CARDS} cards")
    print(f"expert     {expert:.3f} of {len(rows)} questions")
    hidden = max(initial_frames, readers["temporal"]) <= MOST_TEMPORAL
    return 0 if hidden and readers["zoom"] >= LEAST_ZOOM and expert == 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
