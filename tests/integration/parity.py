"""Log-probabilities of a recorded rollout, recomputed by plain transformers from token ids and re-decoded frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from verl_video_tools.core.types import FrameRequest, Trajectory
from verl_video_tools.loop_check.reference import load, token_log_probs
from verl_video_tools.video import Video

Fault = Literal["images_shuffled", "one_dimensional_positions", "image_dropped"]


@dataclass(frozen=True)
class Comparison:
    """Mean absolute difference of log-probabilities over sampled tokens, by side of the first observation picture."""

    before: float
    after: float
    num_before: int
    num_after: int


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
    image_id = load(folder)[1].image_token_id
    ids = np.array(prompt + response)
    keep = np.ones(len(ids), dtype=bool)
    if fault == "images_shuffled":
        images = [images[i] for i in np.random.default_rng(0).permutation(len(images))]
    if fault == "image_dropped":
        starts = np.flatnonzero((ids == image_id) & (np.roll(ids, 1) != image_id))
        first, run = starts[-1], np.flatnonzero(ids[starts[-1] :] != image_id)[0]
        keep[first : first + run] = False
        images = images[:-1]
    flat = torch.arange(keep.sum()).expand(3, 1, -1) if fault == "one_dimensional_positions" else None
    logprobs = token_log_probs(
        folder,
        ids[keep].tolist(),
        images,
        banned=banned,
        mm_processor_kwargs=mm_processor_kwargs,
        position_ids=flat,
    )
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
