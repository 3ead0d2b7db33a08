"""First part of pre-training: the vision tower alone learns to tell the world's things apart.

A linear head over each merged picture token, thrown away afterwards, asks every one of a picture's four tokens for what
the picture shows. Seeing is the bottleneck of so small a model; learnt alone it costs a few minutes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional
from transformers import Qwen2_5_VLForConditionalGeneration

from .frame_pool import NOTHING, FramePool

TOKENS_PER_FRAME = 4
_MEAN_RGB = np.array([0.48145466, 0.4578275, 0.40821073], np.float32) * 255
_STD_RGB = np.array([0.26862954, 0.26130258, 0.27577711], np.float32) * 255
Log = Callable[[dict[str, float | int | str]], None]


def patches(frames_NHWC: np.ndarray) -> torch.Tensor:
    """Pixel values of 56 x 56 frames as Qwen2-VL's image processor gives them: (16 N) x 1176, float32."""
    count = len(frames_NHWC)
    x = (frames_NHWC.astype(np.float32) - _MEAN_RGB) / _STD_RGB
    x = np.repeat(x.transpose(0, 3, 1, 2)[:, None], 2, axis=1)  # N, time 2, RGB, 56, 56
    x = x.reshape(count, 2, 3, 2, 2, 14, 2, 2, 14)  # rows and columns: 2 merged tokens of 2 patches of 14 pixels
    x = x.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return torch.from_numpy(np.ascontiguousarray(x).reshape(count * 16, 1176))


def frame_features(model: Qwen2_5_VLForConditionalGeneration, frames_NHWC: np.ndarray) -> torch.Tensor:
    """What the language model receives for each frame: N x 4 x hidden size."""
    grid = torch.tensor([[1, 4, 4]]).repeat(len(frames_NHWC), 1)
    features = model.model.visual(patches(frames_NHWC), grid_thw=grid).pooler_output
    return features.view(len(frames_NHWC), TOKENS_PER_FRAME, -1)


@torch.no_grad()
def all_features(model: Qwen2_5_VLForConditionalGeneration, pool: FramePool, batch: int = 256) -> torch.Tensor:
    """`frame_features` of a whole pool, computed in pieces of `batch` frames."""
    count = len(pool.frames_NHWC)
    parts = [frame_features(model, pool.frames_NHWC[start : start + batch]) for start in range(0, count, batch)]
    return torch.cat(parts)


def pretrain_vision(
    model: Qwen2_5_VLForConditionalGeneration, pool: FramePool, steps: int, seed: int, log: Log, batch: int = 96
) -> None:
    """Trains `model`'s vision tower in place for `steps` steps of `batch` frames, all classes equally often."""
    rng = np.random.default_rng(seed)
    members = pool.by_class()
    head = torch.nn.Linear(model.config.text_config.hidden_size, NOTHING + 1)
    parameters = [*model.model.visual.parameters(), *head.parameters()]
    peak_rate = 2e-3
    optimizer = torch.optim.AdamW(parameters, lr=peak_rate, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        progress = (step + 1) / steps
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * min(1.0, (step + 1) / 30, 2 * (1 - progress) + 0.02)
        wanted = rng.integers(0, NOTHING + 1, batch)
        chosen = np.array([rng.choice(members[number]) for number in wanted])
        logits = head(frame_features(model, pool.frames_NHWC[chosen]))
        target = torch.from_numpy(wanted).repeat_interleave(TOKENS_PER_FRAME)
        loss = functional.cross_entropy(logits.flatten(0, 1), target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 25 == 24 or step + 1 == steps:
            accuracy = (logits.mean(1).argmax(-1).numpy() == wanted).mean()
            log({"part": "vision", "step": step + 1, "loss": loss.item(), "accuracy": float(accuracy)})
