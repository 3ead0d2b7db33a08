"""Measures a base model on frames of videos that it never saw: `python -m verl_video_tools.demo.evaluate --model DIR`.

Answers count only if every token of them is the model's first choice, given the true tokens before it: then, and only
then, greedy decoding would have written the whole answer.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from .encoding import IGNORED, Encoder, Sequence, logits_at_targets
from .frame_pool import FramePool, make_pool
from .perception import FRAME_TASKS, TEXT_TASKS, Piece, frames_turn, opening, text_turn
from .tiny_model import TinyModel, TinyProcessor
from .vision_pretrain import all_features

HELD_OUT_SEED = 1_000_000
"""Seed of the held-out videos; pre-training uses small seeds."""


@torch.no_grad()
def evaluate(
    model: TinyModel,
    processor: TinyProcessor,
    pool: FramePool,
    num_per_task: int,
    seed: int = 0,
    tasks: Collection[str] | None = None,
) -> dict[str, float]:
    """Share of answers that are right throughout, per practice task, each after up to 300 tokens of other turns.

    Two more figures come from the lists of all frames: `copying`, the share of frames whose number is right, and
    `naming`, the share of frames whose thing is.

    Args:
        tasks: names of the practice tasks to measure; all by default.
    """
    tokenizer = processor.tokenizer
    encoder = Encoder(tokenizer, pool, seed)
    features = all_features(model, processor.image_processor, pool)
    digits = torch.tensor([tokenizer.convert_tokens_to_ids(digit) for digit in "0123456789"])
    rng = random.Random(seed)
    shares: dict[str, float] = {}
    for name, task in _tasks().items():
        if tasks is not None and name not in tasks:
            continue
        right, copied, named = 0, [], []
        for _ in range(num_per_task):
            row = _context(encoder, rng)
            encoder.append(row, task(rng))
            logits, wanted = logits_at_targets(model, encoder.batch([row]), features, encoder.image_id)
            hits = logits.argmax(-1) == wanted
            right += bool(hits.all())
            if name == "list_all":
                numbers, things = _lines(hits, torch.isin(wanted, digits))
                copied += numbers
                named += things
        shares[name] = right / num_per_task
        if name == "list_all":
            shares |= {"copying": sum(copied) / len(copied), "naming": sum(named) / len(named)}
    return shares


def _tasks() -> dict[str, Callable[[random.Random], list[Piece]]]:
    """Every practice task once, by name, as a function that makes a turn with this task only."""
    makers: dict[str, Callable[[random.Random], list[Piece]]] = {}
    for frame_task in FRAME_TASKS:
        makers[frame_task.__name__.strip("_")] = partial(frames_turn, max_frames=8, dense=False, tasks=(frame_task,))
    for text_task in TEXT_TASKS:
        makers[text_task.__name__.strip("_")] = partial(text_turn, tasks=(text_task,))
    return makers


def _context(encoder: Encoder, rng: random.Random) -> Sequence:
    """What stands before the turn that counts; none of it is scored."""
    row = Sequence()
    encoder.append(row, opening(rng))
    length = rng.randrange(300)
    while len(row.ids) < length:
        encoder.append(row, text_turn(rng) if rng.random() < 0.3 else frames_turn(rng, max_frames=8, dense=False))
    row.labels = [IGNORED] * len(row.labels)
    return row


def _lines(hits: torch.Tensor, is_digit: torch.Tensor) -> tuple[list[bool], list[bool]]:
    """For every line `frame N thing` of an answer: is its number right, is the rest after the number right?"""
    numbers: list[bool] = []
    things: list[bool] = []
    for hit, digit, after_digit in zip(hits.tolist(), is_digit.tolist(), [False, *is_digit.tolist()], strict=False):
        if digit and not after_digit:
            numbers.append(True)
        elif after_digit and not digit:
            things.append(True)
        if digit:
            numbers[-1] &= hit
        elif len(things) == len(numbers) and things:
            things[-1] &= hit
    return numbers, things


def main() -> None:
    """Command line: prints one JSON object with the share of right answers per task."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--per-task", type=int, default=200)
    parser.add_argument("--videos", type=int, default=12)
    arguments = parser.parse_args()
    model = AutoModelForImageTextToText.from_pretrained(arguments.model, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(arguments.model)
    pool = make_pool(arguments.videos, HELD_OUT_SEED)
    shares = evaluate(model, processor, pool, arguments.per_task)
    print(json.dumps({name: round(share, 4) for name, share in shares.items()}))


if __name__ == "__main__":
    main()
