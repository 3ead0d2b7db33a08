"""Requests that our front end prepares, beside those that vLLM prepares itself.

    VERL_PLATFORM=cpu python -m tests.integration.front_end_requests MODEL_DIR CACHE_GB [NUM_REQUESTS]

Random requests of interleaved rollouts, each with more images than the one before, go through both; each side has a
processor cache, and behind it the cache of an engine core, which must see images in the same order. Prints one JSON
object: how many requests were compared, how many images vLLM's cache held already, how many it had thrown away, and
what differed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.multimodal.cache import MultiModalReceiverCache
from vllm.renderers import renderer_from_config
from vllm.v1.engine.input_processor import InputProcessor

from verl_video_tools.verl_plugin.sent_images import SentImages, image_name
from verl_video_tools.verl_plugin.vllm_front_end import FrontEnd

SIZES = ((56, 84), (84, 84), (112, 56))
NUM_ROLLOUTS = 16


class Reference(list):
    """Stands for a reference to an object in Ray's store."""

    def __await__(self) -> Generator[None, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return list(self)


class Side:
    """A front end with all that lies behind it, up to the model."""

    def __init__(self, config: Any) -> None:
        self.renderer = renderer_from_config(config)
        self.inputs = InputProcessor(config, self.renderer)
        self.core_cache = MultiModalReceiverCache(config.model_config)

    def request(self, engine_input: Any) -> Any:
        """As the engine core has it, with every image's tensors."""
        request = self.inputs.process_inputs("request", engine_input, SamplingParams(max_tokens=1), ("generate",))
        request.mm_features = self.core_cache.get_and_update_features(request.mm_features)
        return request


def differences(expected: Any, found: Any) -> list[str]:
    """Names of what differs between two requests."""
    names = [] if expected.prompt_token_ids == found.prompt_token_ids else ["prompt_token_ids"]
    for ours, theirs in zip(found.mm_features, expected.mm_features, strict=True):
        for name in ("modality", "identifier", "mm_hash", "mm_position"):
            if getattr(ours, name) != getattr(theirs, name):
                names.append(name)
        tensors, expected_tensors = ours.data.get_data(), theirs.data.get_data()
        if set(tensors) != set(expected_tensors) or not all(
            torch.equal(tensors[name], expected_tensors[name]) for name in tensors
        ):
            names.append("tensors")
    return names


def main(model_dir: str, cache_gb: float, num_requests: int) -> dict[str, Any]:
    config = AsyncEngineArgs(
        model_dir,
        max_model_len=8192,
        enforce_eager=True,
        dtype="float32",
        limit_mm_per_prompt={"image": 4096, "video": 0},
        mm_processor_cache_gb=cache_gb,
    ).create_engine_config()
    stock, ours = Side(config), Side(config)
    draw = random.Random(0)
    noise = np.random.default_rng(0)
    tokenizer = stock.renderer.get_tokenizer()
    start, pad, end = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])

    def image() -> np.ndarray:
        height, width = draw.choice(SIZES)
        return noise.integers(0, 256, (height, width, 3), dtype=np.uint8)

    initial = [[image() for _ in range(12)] for _ in range(4)]  # rollouts of a group start with the same ones
    messages = [[initial[number % 4]] for number in range(NUM_ROLLOUTS)]
    prompts = [[*tokenizer.encode("Look."), *[start, pad, end] * 12] for _ in range(NUM_ROLLOUTS)]

    async def compare() -> dict[str, Any]:
        front_end = FrontEnd(SimpleNamespace(renderer=ours.renderer))
        found: list[str] = []
        num_known = num_seen = num_evicted = 0
        seen: set[str] = set()
        for number in range(num_requests):
            rollout = draw.randrange(NUM_ROLLOUTS)
            if number >= NUM_ROLLOUTS:
                added = [image() for _ in range(draw.randrange(1, 5))]
                messages[rollout].append(added)
                for _ in added:
                    prompts[rollout] += [*tokenizer.encode(f" at {number}"), start, pad, end]
            ids, shown = prompts[rollout], [array for message in messages[rollout] for array in message]
            names = [image_name(array) for array in shown]
            cached = stock.renderer.mm_processor_cache.is_cached(names)
            num_known += sum(cached)
            num_seen += len(names)
            num_evicted += sum(name in seen and not known for name, known in zip(names, cached, strict=True))
            seen |= set(names)
            expected = stock.renderer._process_multimodal(
                list(ids), {"image": [Image.fromarray(array) for array in shown]}, {"image": names}, None, None
            )
            sent, first = [], 0
            for message in messages[rollout]:
                sent.append(SentImages(Reference(message), 0, tuple(names[first : first + len(message)])))
                first += len(message)
            prepared = await front_end._prepare({"prompt_token_ids": list(ids)}, sent)
            found += differences(stock.request(expected), ours.request(prepared))
        return {
            "num_requests": num_requests,
            "num_images": num_seen,
            "num_cached": num_known,
            "num_evicted": num_evicted,
            "differences": sorted(set(found)),
        }

    return asyncio.run(compare())


if __name__ == "__main__":
    folder, gigabytes, *rest = sys.argv[1:]
    print(json.dumps(main(folder, float(gigabytes), int(rest[0]) if rest else 64)))
