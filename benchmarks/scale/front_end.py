"""What vLLM's front end takes for a later turn, when the processor cache holds all its images.

    python -m benchmarks.scale.front_end MODEL_DIR OUT

A request is made as the server makes it, from token ids and images up to the bytes for the engine core.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NUM_IMAGES = (752, 1152)
_IMAGES_PER_CALL = 120
_NUM_TURNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    os.environ |= {"VERL_PLATFORM": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    result = asyncio.run(measure(options.model))
    options.out.write_text(json.dumps(result, indent=1) + "\n")


class _Reference(list[Any]):
    """Stands for a reference to an object in Ray's store."""

    def __await__(self) -> Generator[None, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return list(self)


async def measure(model: str) -> dict[str, Any]:
    import numpy as np
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.renderers import renderer_from_config
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.serial_utils import MsgpackEncoder

    from verl_video_tools.verl_plugin.images import SentImages, image_name
    from verl_video_tools.verl_plugin.vllm_front_end import FrontEnd

    config = AsyncEngineArgs(
        model,
        max_model_len=131_072,
        enforce_eager=True,
        limit_mm_per_prompt={"image": 4096, "video": 0},
        mm_processor_cache_gb=12,
    ).create_engine_config()
    renderer = renderer_from_config(config)
    inputs, encoder = InputProcessor(config, renderer), MsgpackEncoder()
    tokenizer = renderer.get_tokenizer()
    image_ids = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
    label = tokenizer.encode(" at 123.4 s")
    noise = np.random.default_rng(0)
    arrays = [noise.integers(0, 256, (168, 280, 3), dtype=np.uint8) for _ in range(max(NUM_IMAGES))]
    front_end, names = FrontEnd(SimpleNamespace(renderer=renderer)), [image_name(array) for array in arrays]

    async def turn(num_images: int) -> None:
        prompt: Any = {"prompt_token_ids": [token for _ in range(num_images) for token in (*label, *image_ids)]}
        bounds = [0, *range(512, num_images, _IMAGES_PER_CALL), num_images]
        sent = [
            SentImages(_Reference(arrays[first:stop]), 0, tuple(names[first:stop]))
            for first, stop in itertools.pairwise(bounds)
        ]
        prompt = await front_end._prepare(prompt, sent)
        request = inputs.process_inputs("request", prompt, SamplingParams(max_tokens=1), ("generate",))
        assert len(request.mm_features) == num_images
        encoder.encode(request)

    results = []
    for num_images in NUM_IMAGES:
        await turn(num_images)
        loop_clock = time.pthread_getcpuclockid(threading.get_ident())
        seconds, loop_seconds = [], []
        for _ in range(_NUM_TURNS):
            cpu, loop = time.process_time(), time.clock_gettime(loop_clock)
            await turn(num_images)
            seconds.append(time.process_time() - cpu)
            loop_seconds.append(time.clock_gettime(loop_clock) - loop)
        results.append(
            {
                "num_images": num_images,
                "cpu_seconds": statistics.median(seconds),
                "loop_cpu_seconds": statistics.median(loop_seconds),
            }
        )
    return {"turns": results}


if __name__ == "__main__":
    main()
