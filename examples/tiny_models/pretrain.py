"""Makes a base model: `python -m examples.tiny_models.pretrain --out DIR --seed 0 --family qwen2_5_vl`.

Two parts: the vision tower alone (`vision_pretrain`), then the language model over its frozen features on practice
conversations (`perception`). Plain PyTorch, float32, CPU; JSON lines on standard output.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModelForImageTextToText

from examples.tiny_models.encoding import Encoder, logits_at_targets
from examples.tiny_models.evaluate import VALIDATION_SEED, evaluate
from examples.tiny_models.frame_pool import FramePool, make_pool
from examples.tiny_models.perception import (
    FRAME_NUMBERS,
    LABEL_STYLES,
    LAST_FRAME_TASKS,
    LAST_TEXT_TASKS,
    LATE_FRAME_TASKS,
    Stage,
)
from examples.tiny_models.tiny_model import (
    TinyModel,
    TinyProcessor,
    make_model,
    make_processor,
    make_tokenizer,
    merger_outputs,
    save,
)
from examples.tiny_models.vision_pretrain import Log, all_features, pretrain_vision
from verl_video_tools.synthetic import FAMILIES

EMBEDDING_STD = 0.08
"""Spread of the token embeddings at the start; picture features are scaled alike, so that none drowns the other."""


def match_scales(model: TinyModel, processor: TinyProcessor, pool: FramePool) -> None:
    """Gives token embeddings and picture features the same spread, by rescaling the last layers of the vision tower."""
    with torch.no_grad():
        embeddings = model.model.language_model.embed_tokens.weight
        embeddings.mul_(EMBEDDING_STD / embeddings.std())
        sample = FramePool(pool.frames_NHWC[:2000], pool.classes_N[:2000])
        levels = all_features(model, processor.image_processor, sample)
        for level, last in zip(levels, merger_outputs(model), strict=True):
            last.weight.mul_(EMBEDDING_STD / level.std())
            last.bias.mul_(EMBEDDING_STD / level.std())


@dataclass(frozen=True)
class Round:
    """One warm-up and decay of the learning rates, with fresh optimizers and random numbers.

    Attributes:
        steps: number of updates.
        rate: factor on the learning rates of `_optimizers`.
        parts: until which share of the steps, tokens per batch, tokens per row, what is practised.
    """

    steps: int
    rate: float
    parts: tuple[tuple[float, int, int, Stage], ...]


_ALL_STYLES = (FRAME_NUMBERS, *LABEL_STYLES)
"""Numbers come twice: two methods have them."""

_LATE = Stage(
    max_frames=8,
    echo_share=0.0,
    text_share=0.25,
    dense_share=0.05,
    table_share=0.4,
    styles=_ALL_STYLES,
    mention_share=0.5,
    tasks=LATE_FRAME_TASKS,
)

_LAST = replace(_LATE, text_share=0.2, table_share=0.2, tasks=LAST_FRAME_TASKS, text_tasks=LAST_TEXT_TASKS)

ROUNDS: tuple[Round, ...] = (
    Round(
        2600,
        1.0,
        (
            (0.30, 2048, 128, Stage(max_frames=3, echo_share=0.25, text_share=0.4, dense_share=0.5)),
            (0.65, 2560, 256, Stage(max_frames=8, echo_share=0.04, text_share=0.36, dense_share=0.2)),
            (1.00, 4096, 512, Stage(max_frames=8, echo_share=0.02, text_share=0.3, dense_share=0.05)),
        ),
    ),
    Round(
        1200,
        0.5,
        (
            (0.70, 2560, 256, Stage(max_frames=8, echo_share=0.0, text_share=0.6, dense_share=0.1, table_share=0.6)),
            (1.00, 4096, 512, Stage(max_frames=8, echo_share=0.0, text_share=0.4, dense_share=0.05, table_share=0.5)),
        ),
    ),
    Round(
        2000,
        0.5,
        (
            (0.50, 2560, 256, _LATE),
            (1.00, 4096, 512, replace(_LATE, max_frames=16)),
        ),
    ),
    Round(
        2400,
        0.5,
        (
            (0.40, 2560, 256, _LAST),
            (1.00, 4096, 512, replace(_LAST, max_frames=16)),
        ),
    ),
)
"""First seeing, copying and reading, in ever longer rows. Then tables: reading backwards, from a thing to the name
before it, is what the model learns last. Then more frames, under the labels of all methods, with talk of other things
before them. Last what a second look needs most: both ends of where to look, and which of several things came last."""


def _optimizers(model: TinyModel) -> list[torch.optim.Optimizer]:
    """Muon for the language model's weight matrices, AdamW for its embeddings, norms, biases and output layer."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = list(model.lm_head.parameters())
    for name, parameter in model.model.language_model.named_parameters():
        (matrices if parameter.ndim == 2 and "embed" not in name else others).append(parameter)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=4e-3, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers


def pretrain_language(
    model: TinyModel,
    processor: TinyProcessor,
    pool: FramePool,
    round_: Round,
    seed: int,
    log: Log,
) -> None:
    """Trains the language model in place over frozen picture features for one round."""
    encoder = Encoder(processor.tokenizer, pool, seed)
    features = all_features(model, processor.image_processor, pool)
    optimizers = _optimizers(model)
    parameters = [*model.model.language_model.parameters(), *model.lm_head.parameters()]
    rng = random.Random(seed)
    started = time.monotonic()
    losses: list[float] = []
    for step in range(round_.steps):
        progress = step / round_.steps
        _, batch_tokens, length, stage = next(part for part in round_.parts if progress < part[0])
        rows = [encoder.row(rng, length, stage) for _ in range(batch_tokens // length)]
        logits, wanted = logits_at_targets(model, encoder.batch(rows), features, encoder.image_id)
        loss = functional.cross_entropy(logits, wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        rate = round_.rate * min(1.0, (step + 1) / 100, 2 * (1 - progress) + 0.01)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * rate
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if step % 50 == 49 or step + 1 == round_.steps:
            log(
                {
                    "part": "language",
                    "step": step + 1,
                    "row_tokens": length,
                    "loss": round(float(np.mean(losses[-50:])), 4),
                    "accuracy": round((logits.argmax(-1) == wanted).float().mean().item(), 4),
                    "seconds": round(time.monotonic() - started, 1),
                }
            )


def main() -> None:
    """Command line: makes the frames, trains the vision tower and then the language model, writes `--out`.

    After every round the model is kept in `--out/round_N`; `--from` goes on from such a folder with the next round, as
    if nothing had come between.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=FAMILIES, default="qwen2_5_vl")
    parser.add_argument("--from", dest="start", type=Path, help="a folder round_N of an earlier run")
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), help="stop after so many")
    parser.add_argument("--vision-steps", type=int, default=700)
    parser.add_argument("--videos", type=int, default=60, help="videos rendered to draw frames from")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    def log(entry: dict[str, float | int | str]) -> None:
        print(json.dumps(entry), flush=True)

    tokenizer = make_tokenizer()
    processor = make_processor(tokenizer, arguments.family)
    pool = make_pool(arguments.videos, arguments.seed)
    if arguments.start is None:
        first = 0
        model = make_model(tokenizer, arguments.seed, arguments.family)
        pretrain_vision(model, processor.image_processor, pool, arguments.vision_steps, arguments.seed, log)
        match_scales(model, processor, pool)
    else:
        first = int(arguments.start.name.removeprefix("round_"))
        model = AutoModelForImageTextToText.from_pretrained(arguments.start, dtype=torch.float32)
    for number, round_ in enumerate(ROUNDS[first : arguments.rounds], start=first + 1):
        pretrain_language(model, processor, pool, round_, arguments.seed + number - 1, log)
        save(model, processor, arguments.out / f"round_{number}")
    save(model, processor, arguments.out)
    shares = evaluate(model.eval(), processor, make_pool(12, VALIDATION_SEED), num_per_task=200)
    log({"part": "held-out frames", **{name: round(share, 4) for name, share in shares.items()}})


if __name__ == "__main__":
    main()
