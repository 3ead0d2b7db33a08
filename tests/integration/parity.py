"""Log-probabilities of a recorded rollout, recomputed by plain transformers from token ids and re-decoded frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from verl_video_tools.core.types import FrameRecord, FrameRequest
from verl_video_tools.video import Video

Fault = Literal["images_shuffled", "one_dimensional_positions", "image_dropped", "features_of_first_image"]
"""What is changed before transformers read the sequence; `features_of_first_image` is a stale encoder cache, in which
all images of one size have the features of the first one of that size."""


@dataclass(frozen=True)
class Comparison:
    """Mean absolute difference of log-probabilities over sampled tokens, by side of the first observation picture."""

    before: float
    after: float
    num_before: int
    num_after: int


@lru_cache(maxsize=4)
def load(folder: Path) -> tuple[Any, Any]:
    """A model in float32, and its processor."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model.eval(), AutoProcessor.from_pretrained(folder)


def pictures(line: dict[str, Any]) -> list[Image.Image]:
    """The frames that the model was shown in a recorded rollout, decoded again by their index and size."""
    trajectory = line["trajectory"]
    called = [frame for call in trajectory.executed_calls() for frame in call.frames]
    return _decoded(line["extra_info"]["video_path"], (*trajectory.initial_frames, *called))


@cache  # several tests look at the same rollouts
def _decoded(video_path: str, records: tuple[FrameRecord, ...]) -> list[Image.Image]:
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
    return sequence_logprobs(folder, tokens["prompts"], tokens["responses"], pictures(line), banned, fault)


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
    image_id = processor.image_token_id
    ids = np.array(prompt + response)
    keep = np.ones(len(ids), dtype=bool)
    if fault == "images_shuffled":
        images = [images[i] for i in np.random.default_rng(0).permutation(len(images))]
    if fault == "features_of_first_image":
        images = [next(first for first in images if first.size == image.size) for image in images]
    if fault == "image_dropped":
        starts = np.flatnonzero((ids == image_id) & (np.roll(ids, 1) != image_id))
        first, run = starts[-1], np.flatnonzero(ids[starts[-1] :] != image_id)[0]
        keep[first : first + run] = False
        images = images[:-1]
    ids_1L = torch.tensor(ids[keep])[None]
    inputs: dict[str, Any] = {"input_ids": ids_1L, "attention_mask": torch.ones_like(ids_1L)}
    if images:
        inputs |= processor.image_processor(images, return_tensors="pt", **(mm_processor_kwargs or {}))
    inputs["mm_token_type_ids"] = (ids_1L == image_id).int()
    if fault == "one_dimensional_positions":
        inputs["position_ids"] = torch.arange(ids_1L.shape[1]).expand(3, 1, -1)
    logits = model(**inputs).logits[0].float()
    if banned:
        logits[:, [image_id, processor.video_token_id]] = -torch.inf
        logits[:, len(processor.tokenizer) :] = -torch.inf
    logprobs = logits.log_softmax(-1)[:-1].gather(1, ids_1L[0, 1:, None]).squeeze(1)
    result = np.full(len(ids), np.nan, dtype=np.float32)
    result[np.flatnonzero(keep)[1:]] = logprobs
    return result[len(prompt) :]


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
