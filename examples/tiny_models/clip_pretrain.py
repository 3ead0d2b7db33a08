"""Makes the tiny CLIP: `python -m examples.tiny_models.clip_pretrain --out DIR --seed 0`.

Decoded H.264 frames against texts, by the pairwise sigmoid loss of SigLIP (arXiv 2303.15343, section 3.2): unlike a
softmax it takes texts that fit several kinds of frames ("red shape"), and it makes similarities comparable between
frames, which is what a ranking needs. Plain PyTorch, float32, CPU; JSON lines on standard output.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import CLIPModel, PreTrainedTokenizerFast

from examples.tiny_models.frame_pool import NOTHING, FramePool, make_pool
from examples.tiny_models.tiny_clip import (
    PHRASES,
    make_image_processor,
    make_model,
    make_tokenizer,
    save,
    sentence,
)
from examples.tiny_models.vision_pretrain import Log

_NUM_VIDEOS = 40
_BATCH_FRAMES = 96
_PEAK_RATE = 2e-3
_START_BIAS = -3.0  # most pairs do not match


def train(
    model: CLIPModel, tokenizer: PreTrainedTokenizerFast, pool: FramePool, steps: int, seed: int, log: Log
) -> None:
    """Trains both towers in place: every step takes frames of all classes equally often, and one text per phrase."""
    rng, text_rng = np.random.default_rng(seed), random.Random(seed)
    members, prepare = pool.by_class(), make_image_processor()
    matches_PC = torch.zeros(len(PHRASES), NOTHING + 1)
    for row, classes in enumerate(PHRASES.values()):
        matches_PC[row, list(classes)] = 1.0
    bias = torch.nn.Parameter(torch.tensor(_START_BIAS))
    parameters = [*model.parameters(), bias]
    optimizer = torch.optim.AdamW(parameters, lr=_PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        progress = (step + 1) / steps
        for group in optimizer.param_groups:
            group["lr"] = _PEAK_RATE * min(1.0, (step + 1) / 50, 2 * (1 - progress) + 0.02)
        wanted = rng.integers(0, NOTHING + 1, _BATCH_FRAMES)
        chosen = np.array([rng.choice(members[number]) for number in wanted])
        texts = [sentence(phrase, text_rng) for phrase in PHRASES]
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        pixels = prepare(list(pool.frames_NHWC[chosen]), return_tensors="pt")["pixel_values"]
        output = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], pixel_values=pixels)
        logits_PN = output.logits_per_text + bias
        target_PN = matches_PC[:, torch.from_numpy(wanted)]
        loss = functional.binary_cross_entropy_with_logits(logits_PN, target_PN)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 50 == 49 or step + 1 == steps:
            log({"step": step + 1, "loss": loss.item(), "wrong_pairs": _share_wrong(logits_PN, target_PN)})


def _share_wrong(logits_PN: torch.Tensor, target_PN: torch.Tensor) -> float:
    return ((logits_PN > 0) != (target_PN > 0.5)).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the tiny CLIP of the synthetic world.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1200)
    options = parser.parse_args()

    def log(line: dict[str, float | int | str]) -> None:
        print(json.dumps(line), flush=True)

    started = time.monotonic()
    pool = make_pool(_NUM_VIDEOS, options.seed)
    log({"part": "frames", "frames": len(pool.frames_NHWC), "seconds": time.monotonic() - started})
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, options.seed)
    train(model, tokenizer, pool, options.steps, options.seed, log)
    save(model.eval(), tokenizer, options.out)
    log(
        {
            "part": "saved",
            "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": time.monotonic() - started,
        }
    )


if __name__ == "__main__":
    main()
