"""Bytes of one image in vLLM's processor cache.

    VERL_PLATFORM=cpu python -m tests.integration.processor_cache_sizes MODEL_DIR SIDE

Prints one JSON object: the image's tokens, the bytes that vLLM's cache counts for it, and those of one pixel value: two
in bfloat16, one where vLLM normalises on the device.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from PIL import Image
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.multimodal.cache import MultiModalCache
from vllm.renderers import renderer_from_config


def main(model_dir: str, side: int) -> dict[str, int]:
    config = AsyncEngineArgs(
        model_dir,
        max_model_len=8192,
        enforce_eager=True,
        dtype="bfloat16",
        limit_mm_per_prompt={"image": 8, "video": 0},
        mm_processor_cache_gb=1,
    ).create_engine_config()
    renderer = renderer_from_config(config)
    tokenizer = renderer.get_tokenizer()
    ids = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
    image = Image.fromarray(np.zeros((side, side, 3), np.uint8))
    prompt = {"prompt_token_ids": list(ids), "multi_modal_data": {"image": [image]}}
    processed = renderer._process_tokens(prompt | {"multi_modal_uuids": {"image": ["one"]}})
    (item,) = processed["mm_kwargs"]["image"]
    (place,) = processed["mm_placeholders"]["image"]
    sizes = {"num_bytes": MultiModalCache.get_item_size(item), "bytes_per_value": item["pixel_values"].data.itemsize}
    return {"num_tokens": place.length} | sizes


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
