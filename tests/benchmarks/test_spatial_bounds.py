"""Bounds of NeedleClips' questions in space: whole frames tell nothing, the same reader reads windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from benchmarks.spatial_bounds import (
    CHANCE,
    MOST_TEMPORAL,
    SeenCards,
    best_reader,
    experts_share,
    initial_frames_share,
    see_cards,
    share_right,
)
from examples.tiny_models.frame_pool import class_name
from verl_video_tools.data.synthetic_rows import load_rows, make_demo
from verl_video_tools.synthetic import base_model_dir


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> tuple[SeenCards, SeenCards]:
    """Some to learn from, and others to be asked about."""
    folder = tmp_path_factory.mktemp("cards")
    return see_cards(folder, 0, 200), see_cards(folder, 2, 200)


def read(known: np.ndarray, asked: np.ndarray, cards: tuple[SeenCards, SeenCards]) -> float:
    return share_right(best_reader(known, cards[0].labels).scores(asked), cards[1].labels)


@pytest.mark.long
def test_a_reader_of_whole_frames_guesses_and_one_of_windows_reads(cards: tuple[SeenCards, SeenCards]) -> None:
    known, asked = cards
    assert read(known.small, asked.small, cards) <= MOST_TEMPORAL
    assert read(known.windows, asked.windows, cards) >= 0.9


@pytest.mark.long  # shows that the test above can fail, and takes its 400 videos
def test_the_reader_would_notice_a_single_level_in_a_single_pixel(cards: tuple[SeenCards, SeenCards]) -> None:
    """If the middle of a card were a level brighter for each of its colours, say."""

    def with_leak(seen: SeenCards) -> np.ndarray:
        leaking = seen.small.copy()
        leaking[:, 6, 6, 0] += seen.labels // 4
        return leaking

    known, asked = cards
    assert read(with_leak(known), with_leak(asked), cards) > CHANCE + 0.3


def test_the_share_is_over_all_choices_of_other_options() -> None:
    labels = np.arange(16)
    assert share_right(np.eye(16), labels) == 1.0
    assert share_right(1 - np.eye(16), labels) == 0.0
    rng = np.random.default_rng(0)
    assert share_right(rng.normal(size=(20_000, 16)), rng.integers(16, size=20_000)) == pytest.approx(CHANCE, abs=0.01)
    scores = rng.normal(size=(1, 16))
    right = []
    for _ in range(4000):
        options = [3, *rng.choice([label for label in range(16) if label != 3], 3, replace=False)]
        right.append(max(options, key=lambda option: scores[0, option]) == 3)
    assert share_right(scores, np.asarray([3])) == pytest.approx(np.mean(right), abs=0.03)


@pytest.mark.long
def test_options_alone_tell_nothing() -> None:
    assert initial_frames_share(20_000) <= MOST_TEMPORAL


def test_the_expert_is_always_right(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = make_demo(tmp_path_factory.mktemp("rows"), 1, 1, 6, agent_names=["compose"], num_processes=1, spatial=True)
    rows = [row for split in ("train", "test") for row in load_rows(folder / f"{split}.parquet")]
    assert experts_share(rows) == 1.0


@pytest.mark.long
def test_names_what_a_zoom_into_a_card_shows(tmp_path: Path) -> None:
    """Windows of NeedleClips' cards look like the frames that it was trained on, which have 56 pixels instead of 16."""
    model = AutoModelForImageTextToText.from_pretrained(base_model_dir(), dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(base_model_dir())
    cards = see_cards(tmp_path, first=50, num_cards=50)
    text = "<|im_start|>user\n7.0s <|vision_start|><|image_pad|><|vision_end|>\nwhat is in 7.0s<|im_end|>\n"
    right = 0
    for window, label in zip(cards.windows, cards.labels, strict=True):
        inputs = processor(
            text=[f"{text}<|im_start|>assistant\n"], images=[Image.fromarray(window)], return_tensors="pt"
        )
        written = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        right += processor.decode(written, skip_special_tokens=True) == f"7.0s {class_name(int(label))}"
    assert right >= 0.9 * len(cards.labels)
