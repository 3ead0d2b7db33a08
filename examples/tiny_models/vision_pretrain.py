"""First part of pre-training: the vision tower alone learns to tell the world's things apart.

A linear head over each merged picture token, thrown away afterwards, asks every one of a picture's four tokens for what
the picture shows. Seeing is the bottleneck of so small a model; learnt alone it costs a few minutes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional
from transformers import Qwen2VLImageProcessor

from examples.tiny_models.frame_pool import NOTHING, FramePool
from examples.tiny_models.tiny_model import TinyModel

TOKENS_PER_FRAME = 4
Log = Callable[[dict[str, float | int | str]], None]


class Objective(torch.nn.Module):
    """What the vision tower is trained for. Its own parameters are trained with it, and thrown away."""

    def forward(self, features_LNTH: torch.Tensor, classes_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss, and the class that each frame is taken for.

        Args:
            features_LNTH: as `frame_features` gives them.
            classes_N: what each frame shows.
        """
        raise NotImplementedError("each objective has a loss of its own")


class LinearHead(Objective):
    """A linear layer over each picture token names the frame's class."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.head = torch.nn.Linear(hidden_size, NOTHING + 1)

    def forward(self, features_LNTH: torch.Tensor, classes_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.head(features_LNTH)
        target = classes_N[None, :, None].expand(logits.shape[:-1])
        return functional.cross_entropy(logits.flatten(0, 2), target.flatten()), logits.mean((0, 2)).argmax(-1)


def frame_features(model: TinyModel, image_processor: Qwen2VLImageProcessor, frames_NHWC: np.ndarray) -> torch.Tensor:
    """What the language model receives for each frame: levels x N x 4 x hidden size.

    The first level takes the place of token embeddings; further ones, which only Qwen3-VL has, are its deepstack.
    """
    frames_NCHW = torch.from_numpy(frames_NHWC).permute(0, 3, 1, 2)
    inputs = image_processor(images=list(frames_NCHW), return_tensors="pt")
    output = model.model.visual(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"])
    levels = torch.stack([output.pooler_output, *getattr(output, "deepstack_features", ())])
    return levels.view(len(levels), len(frames_NHWC), TOKENS_PER_FRAME, -1)


@torch.no_grad()
def all_features(
    model: TinyModel, image_processor: Qwen2VLImageProcessor, pool: FramePool, batch: int = 256
) -> torch.Tensor:
    """`frame_features` of the whole pool as a table: levels x rows of picture tokens (4 per frame) x hidden size."""
    frames_NHWC = pool.frames_NHWC
    parts = [
        frame_features(model, image_processor, frames_NHWC[start : start + batch])
        for start in range(0, len(frames_NHWC), batch)
    ]
    return torch.cat(parts, dim=1).flatten(1, 2)


def pretrain_vision(
    model: TinyModel,
    image_processor: Qwen2VLImageProcessor,
    pool: FramePool,
    steps: int,
    seed: int,
    log: Log,
    batch: int = 96,
    objective: Objective | None = None,
) -> None:
    """Trains `model`'s vision tower in place for `steps` steps of `batch` frames, all classes equally often.

    Args:
        objective: by default `LinearHead`.
    """
    rng = np.random.default_rng(seed)
    members = pool.by_class()
    objective = objective or LinearHead(model.config.text_config.hidden_size)
    parameters = [*model.model.visual.parameters(), *objective.parameters()]
    peak_rate = 2e-3
    optimizer = torch.optim.AdamW(parameters, lr=peak_rate, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        progress = (step + 1) / steps
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * min(1.0, (step + 1) / 30, 2 * (1 - progress) + 0.02)
        wanted = rng.integers(0, NOTHING + 1, batch)
        chosen = np.array([rng.choice(members[number]) for number in wanted])
        features = frame_features(model, image_processor, pool.frames_NHWC[chosen])
        loss, named_N = objective(features, torch.from_numpy(wanted))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 25 == 24 or step + 1 == steps:
            accuracy = (named_N.numpy() == wanted).mean()
            log({"part": "vision", "step": step + 1, "loss": loss.item(), "accuracy": float(accuracy)})
