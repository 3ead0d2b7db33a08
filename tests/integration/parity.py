"""Log-probabilities of a recorded rollout, recomputed by plain transformers from token ids and re-decoded frames.

Nothing of the training stack is used: neither verl's position ids nor its pixel tensors, so a disagreement with the
inference engine or the actor shows a bug in what they were given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from verl_video_tools.core.types import FrameRequest, Trajectory
from verl_video_tools.video import Video

Fault = Literal["images_shuffled", "one_dimensional_positions", "image_dropped"]


@dataclass(frozen=True)
class Comparison:
    """Mean absolute difference of log-probabilities over sampled tokens, by side of the first observation picture."""

    before: float
    after: float
    num_before: int
    num_after: int


@lru_cache(maxsize=4)
def load(folder: Path) -> tuple[Any, Any]:
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model.eval(), AutoProcessor.from_pretrained(folder)


def pictures(trajectory: Trajectory, video_path: str) -> list[Image.Image]:
    """The frames that the model was shown, decoded again from the file by their recorded index and size."""
    records = [*trajectory.initial_frames, *(frame for call in trajectory.executed_calls() for frame in call.frames)]
    with Video(video_path) as video:
        return [
            Image.fromarray(video.frames(FrameRequest(r.width, r.height, indices=(r.index,))).frames_THWC[0])
            for r in records
        ]


def response_logprobs(
    folder: Path, line: dict[str, Any], banned: bool = True, fault: Fault | None = None
) -> np.ndarray:
    """`sequence_logprobs` of a recorded rollout, its pictures decoded again."""
    (tokens,) = line["sequences"]
    images = pictures(line["trajectory"], line["extra_info"]["video_path"])
    return sequence_logprobs(folder, tokens["prompts"], tokens["responses"], images, banned, fault)


@torch.no_grad()
def sequence_logprobs(
    folder: Path,
    prompt: list[int],
    response: list[int],
    images: list[Image.Image],
    banned: bool = True,
    fault: Fault | None = None,
    mm_processor_kwargs: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Log-probability of every response token; NaN where `fault` removed the token.

    Args:
        banned: renormalise without the ids that verl bans in vLLM (vision placeholders, ids beyond the tokenizer).
    """
    model, processor = load(folder)
    ids = torch.tensor(prompt + response)
    image_id = processor.image_token_id
    keep = torch.ones_like(ids, dtype=torch.bool)
    if fault == "images_shuffled":
        images = [images[i] for i in np.random.default_rng(0).permutation(len(images))]
    if fault == "image_dropped":
        starts = torch.nonzero((ids == image_id) & (ids.roll(1) != image_id)).flatten().tolist()
        first, run = starts[-1], (ids[starts[-1] :] != image_id).nonzero()[0].item()
        keep[first : first + run] = False
        images = images[:-1]
    vision = processor.image_processor(images, return_tensors="pt", **(mm_processor_kwargs or {}))
    kept = ids[keep].unsqueeze(0)
    inputs: dict[str, Any] = {"input_ids": kept, "attention_mask": torch.ones_like(kept), **vision}
    inputs["mm_token_type_ids"] = (kept == image_id).int()
    if fault == "one_dimensional_positions":
        inputs["position_ids"] = torch.arange(kept.shape[1]).expand(3, 1, -1)
    logits = model(**inputs).logits[0].float()
    if banned:
        for name in ("image_token_id", "video_token_id"):
            logits[:, getattr(processor, name)] = -torch.inf
        logits[:, len(processor.tokenizer) :] = -torch.inf
    next_token = logits.log_softmax(-1)[:-1].gather(1, kept[0, 1:, None]).squeeze(1)
    result = torch.full((len(ids),), torch.nan)
    result[keep.nonzero().flatten()[1:]] = next_token
    return result[len(prompt) :].numpy()


def compare(line: dict[str, Any], logprobs: np.ndarray, reference: str, image_id: int) -> tuple[list, list]:
    """Absolute differences to the recorded `reference` over sampled tokens, before and after the first observation
    picture."""
    (tokens,) = line["sequences"]
    mask = np.array(tokens["response_mask"], dtype=bool)
    differences = np.abs(logprobs - np.array(tokens[reference]))
    observed = np.cumsum(np.array(tokens["responses"]) == image_id) > 0
    return list(differences[mask & ~observed]), list(differences[mask & observed])


def summarise(pairs: Sequence[tuple[list, list]]) -> Comparison:
    before = np.array([value for pair in pairs for value in pair[0]])
    after = np.array([value for pair in pairs for value in pair[1]])
    return Comparison(
        float(np.nanmean(before)) if len(before) else 0.0,
        float(np.nanmean(after)) if len(after) else 0.0,
        len(before),
        len(after),
    )
