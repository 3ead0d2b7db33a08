"""The same model by plain transformers: log-probabilities and positions of a sequence, from its ids and images alone.

Nothing of the training stack is used: neither verl's position ids nor its pixel tensors, so a disagreement with the
inference engine or the actor shows a bug in what they were given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from verl_video_tools.core.errors import UsageError


@lru_cache(maxsize=4)
def load(folder: Path) -> tuple[Any, Any]:
    """A model in float32, and its processor.

    Raises:
        UsageError: the folder holds none that transformers can load.
    """
    try:
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
        return model.eval(), AutoProcessor.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} holds no model with a processor that transformers can load: {error}") from error


@torch.no_grad()
def token_log_probs(
    folder: Path,
    ids: Sequence[int],
    images: Sequence[Image.Image],
    *,
    banned: bool,
    temperature: float = 1.0,
    mm_processor_kwargs: Mapping[str, Any] | None = None,
    position_ids: torch.Tensor | None = None,
) -> npt.NDArray[np.float32]:
    """Log-probability of every id but the first, given those before it.

    Args:
        images: one for each run of placeholders in `ids`.
        banned: renormalise without the ids that verl bans in vLLM (vision placeholders, ids beyond the tokenizer).
        temperature: of sampling, as vLLM and verl divide by it.
        position_ids: in place of the model's own, shape (3, 1, len(ids)).

    Returns:
        Shape (len(ids) - 1,).
    """
    model, processor = load(folder)
    ids_1L = torch.tensor([list(ids)])
    inputs: dict[str, Any] = {"input_ids": ids_1L, "attention_mask": torch.ones_like(ids_1L)}
    if images:
        inputs |= processor.image_processor(list(images), return_tensors="pt", **(mm_processor_kwargs or {}))
    inputs["mm_token_type_ids"] = (ids_1L == processor.image_token_id).int()
    if position_ids is not None:
        inputs["position_ids"] = position_ids
    logits = model(**inputs).logits[0].float() / temperature
    if banned:
        for name in ("image_token_id", "video_token_id"):
            logits[:, getattr(processor, name)] = -torch.inf
        logits[:, len(processor.tokenizer) :] = -torch.inf
    result: npt.NDArray[np.float32] = logits.log_softmax(-1)[:-1].gather(1, ids_1L[0, 1:, None]).squeeze(1).numpy()
    return result


def position_ids_CL(folder: Path, ids: Sequence[int], grids_N3: Sequence[Sequence[int]]) -> list[list[int]]:
    """Positions as verl's rows hold them: in reading order, then the model's own three, if it has more than one."""
    model, processor = load(folder)
    flat_L = list(range(len(ids)))
    if not hasattr(model.model, "get_rope_index"):
        return [flat_L]
    ids_1L = torch.tensor([list(ids)])
    rope_ids_31L, _ = model.model.get_rope_index(
        input_ids=ids_1L,
        mm_token_type_ids=(ids_1L == processor.image_token_id).int(),
        image_grid_thw=torch.tensor([list(grid) for grid in grids_N3]) if grids_N3 else None,
        attention_mask=torch.ones_like(ids_1L),
    )
    return [flat_L, *rope_ids_31L[:, 0].tolist()]
