"""Measures a base model on unseen frames: `python -m examples.tiny_models.evaluate --model DIR`.

Answers count only if every token of them is the model's first choice, given the true tokens before it: then, and only
then, greedy decoding would have written the whole answer.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Collection
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from examples.tiny_models.encoding import IGNORED, Encoder, Sequence, logits_at_targets
from examples.tiny_models.frame_pool import FramePool, make_pool
from examples.tiny_models.perception import (
    FRAME_NUMBERS,
    LABEL_STYLES,
    LAST_FRAME_TASKS,
    LAST_TEXT_TASKS,
    LATE_FRAME_TASKS,
    TEXT_TASKS,
    LabelStyle,
    Piece,
    frames_turn,
    opening,
    text_turn,
)
from examples.tiny_models.tiny_model import TinyModel, TinyProcessor
from examples.tiny_models.vision_pretrain import all_features

VALIDATION_SEED = 1_000_000
"""Seed of the held-out videos; pre-training uses small seeds."""


@torch.no_grad()
def evaluate(
    model: TinyModel,
    processor: TinyProcessor,
    pool: FramePool,
    num_per_task: int,
    seed: int = 0,
    tasks: Collection[str] | None = None,
    style: LabelStyle = FRAME_NUMBERS,
) -> dict[str, float]:
    """Share of answers that are right throughout, per practice task, each after up to 300 tokens of other turns.

    Two more figures come from the lists of all frames: `copying`, the share of frames whose number (or time) is right,
    and `naming`, the share of frames whose thing is.

    Args:
        tasks: names of the practice tasks to measure; all by default.
        style: how the frames of the turn that counts are labelled.
    """
    tokenizer = processor.tokenizer
    encoder = Encoder(tokenizer, pool, seed)
    features = all_features(model, processor.image_processor, pool)
    rng = random.Random(seed)
    shares: dict[str, float] = {}
    for name, task in _tasks(style).items():
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
                numbers, things = _lines(hits.tolist(), [tokenizer.decode([token]) for token in wanted.tolist()])
                copied += numbers
                named += things
        shares[name] = right / num_per_task
        if name == "list_all":
            shares |= {"copying": sum(copied) / len(copied), "naming": sum(named) / len(named)}
    return shares


def _tasks(style: LabelStyle) -> dict[str, Callable[[random.Random], list[Piece]]]:
    """Every practice task once, by name, as a function that makes a turn with this task only."""
    makers: dict[str, Callable[[random.Random], list[Piece]]] = {}
    for frame_task in (*LATE_FRAME_TASKS, *LAST_FRAME_TASKS):
        makers[frame_task.__name__.strip("_")] = partial(
            frames_turn, max_frames=8, dense=False, tasks=(frame_task,), style=style
        )
    for text_task in (*TEXT_TASKS, *LAST_TEXT_TASKS):
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


_LINE = re.compile(r"^(frame \d+|[\d.]+ ?s) (.+?)(?=<|$)", re.MULTILINE)


def _lines(hits: list[bool], texts: list[str]) -> tuple[list[bool], list[bool]]:
    """For every line `frame N thing` of an answer: is the frame's name right, is the thing?

    Args:
        hits: is this token of the answer right?
        texts: the text of each token.
    """
    ends = list(accumulate(map(len, texts)))
    starts = [0, *ends]

    def right(span: tuple[int, int]) -> bool:
        return all(
            hit for hit, start, end in zip(hits, starts, ends, strict=False) if start < span[1] and end > span[0]
        )

    lines = list(_LINE.finditer("".join(texts)))
    return [right(line.span(1)) for line in lines], [right(line.span(2)) for line in lines]


def main() -> None:
    """Command line: prints one JSON object with the share of right answers per task, for each way to label frames."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--per-task", type=int, default=200)
    parser.add_argument("--videos", type=int, default=12)
    parser.add_argument("--all-labels", action="store_true", help="the labels of every method, not only frame numbers")
    arguments = parser.parse_args()
    model = AutoModelForImageTextToText.from_pretrained(arguments.model, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(arguments.model)
    pool = make_pool(arguments.videos, VALIDATION_SEED)
    for style in LABEL_STYLES if arguments.all_labels else (FRAME_NUMBERS,):
        shares = evaluate(model, processor, pool, arguments.per_task, style=style)
        print(json.dumps({"label": style.label, **{name: round(share, 4) for name, share in shares.items()}}))


if __name__ == "__main__":
    main()
