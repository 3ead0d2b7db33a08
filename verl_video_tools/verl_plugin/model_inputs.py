"""What a training engine needs beside token ids: pixel tensors and the model's own position ids.

Equal to what verl's agent loop worker computes after a rollout (`_compute_multi_modal_inputs`,
`_compute_position_ids`); tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from verl.utils.tokenizer import get_processor_token_id

from verl_video_tools.core.types import FrameRecord


def image_grids_N3(image_processor: Any, records: Sequence[FrameRecord]) -> torch.Tensor:
    """The processor's `image_grid_thw`, from the sizes of images that it leaves as they are.

    Returns:
        int64, shape (N, 3): patches of each image in time, height and width.
    """
    patch = image_processor.patch_size
    grids = [(1, record.height // patch, record.width // patch) for record in records]
    return torch.tensor(grids, dtype=torch.long).reshape(-1, 3)


def position_ids_4L(processor: Any, ids: Sequence[int], inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Positions of an unpadded sequence: one row in reading order, three of the model's multimodal rotary embedding.

    Args:
        processor: as `verl.utils.hf_processor` loads it, with the model's `get_rope_index` bound to it.
        ids: token ids, placeholders expanded.
        inputs: the multimodal ones; `image_grid_thw` is read.

    Returns:
        int64, shape (4, len(ids)).
    """
    input_ids_1L = torch.tensor([list(ids)], dtype=torch.long)
    is_image_1L = input_ids_1L == get_processor_token_id(processor, "image")
    rope_ids_31L, _ = processor.get_rope_index(
        input_ids=input_ids_1L,
        attention_mask=torch.ones_like(input_ids_1L),
        image_grid_thw=inputs.get("image_grid_thw"),
        video_grid_thw=None,
        mm_token_type_ids=is_image_1L.long(),
    )
    return torch.cat([torch.arange(input_ids_1L.shape[1])[None], rope_ids_31L[:, 0]], dim=0)
