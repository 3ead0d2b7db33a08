"""Requests that our front end prepares, beside those that vLLM prepares itself.

    VERL_PLATFORM=cpu python -m tests.integration.front_end_requests MODEL_DIR CACHE_GB

CACHE_GB is the size of a cache that holds pixel values in float32; where vLLM sends 8 bits, a fourth holds as many.

Rollouts of random images run at the same time through our front end, each with more images in every request. vLLM's
then prepares the same requests, in the order in which its engine got them. Each side has a processor cache, and behind
it the cache of an engine core, which must see images in the same order. Rollouts that start with the same images have
one of two settings of the processor.

Prints one JSON object: how many requests were compared, how many followed one of another rollout, how many images
vLLM's cache held already, how many it had thrown away, what differed, and how many images both settings showed, and how
many of these had features in common.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from PIL import Image
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.multimodal import cache as vllm_cache
from vllm.renderers import renderer_from_config
from vllm.v1.engine.input_processor import InputProcessor

from verl_video_tools.verl_plugin.images import SentImages, image_name
from verl_video_tools.verl_plugin.vllm_front_end import FrontEnd

_ReceiverCache: Any = (
    vllm_cache.MultiModalReceiverCache
    if hasattr(vllm_cache, "MultiModalReceiverCache")
    else vllm_cache.LruKeyReplicatedReceiverCache  # from vLLM 0.31 on
)
SIZES = ((56, 84), (84, 84), (112, 56))
NUM_ROLLOUTS, NUM_TURNS = 16, 4
SETTINGS = ({}, {"max_pixels": 56 * 56})
"""Of the processor: images as they are, and shrunk."""


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
        self.core_cache = _ReceiverCache(config.model_config)

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


@dataclass
class Rollout:
    """One that adds `messages[n]`, each of several images, and `texts[n]` before its request n."""

    settings: dict[str, int]
    messages: list[list[np.ndarray]]
    texts: list[list[int]]

    def shown(self, turn: int) -> list[np.ndarray]:
        return [array for message in self.messages[: turn + 1] for array in message]

    def ids(self, turn: int, markers: list[int]) -> list[int]:
        turns = zip(self.texts[: turn + 1], self.messages, strict=False)
        return [token for text, message in turns for token in (*text, *markers * len(message))]


class Engine:
    """Stands for `AsyncLLM`: what it is handed goes to the cache of the engine core at once."""

    def __init__(self, side: Side) -> None:
        self.side, self.renderer = side, side.renderer
        self.requests: dict[tuple[int, int], Any] = {}

    async def generate(self, engine_input: Any, request_id: tuple[int, int]) -> AsyncGenerator[None, None]:
        self.requests[request_id] = self.side.request(engine_input)
        yield None
        await asyncio.sleep(0)


def rollouts(tokenizer: Any) -> list[Rollout]:
    draw, noise = random.Random(0), np.random.default_rng(0)

    def images(number: int) -> list[np.ndarray]:
        return [noise.integers(0, 256, (*draw.choice(SIZES), 3), dtype=np.uint8) for _ in range(number)]

    initial = [images(12) for _ in range(4)]  # rollouts of a group start with the same ones
    texts = [tokenizer.encode("Look."), *(tokenizer.encode(f" at {turn}") for turn in range(1, NUM_TURNS))]
    return [
        Rollout(
            SETTINGS[number // 4 % 2],
            [initial[number % 4], *(images(draw.randrange(1, 9)) for _ in range(1, NUM_TURNS))],
            texts,
        )
        for number in range(NUM_ROLLOUTS)
    ]


async def run(front_end: FrontEnd, number: int, rollout: Rollout, markers: list[int]) -> None:
    for turn in range(NUM_TURNS):
        sent = [
            SentImages(Reference(message), 0, tuple(map(image_name, message)))
            for message in rollout.messages[: turn + 1]
        ]
        prompt = {"prompt_token_ids": rollout.ids(turn, markers), "multi_modal_data": {"image": sent}}
        prompt["mm_processor_kwargs"] = rollout.settings
        async for _ in front_end.generate(prompt, (number, turn)):
            pass


def engine_config(model_dir: str, cache_gb: float) -> Any:
    return AsyncEngineArgs(
        model_dir,
        max_model_len=8192,
        enforce_eager=True,
        dtype="float32",
        limit_mm_per_prompt={"image": 4096, "video": 0},
        mm_processor_cache_gb=cache_gb,
    ).create_engine_config()


async def compare(model_dir: str, cache_gb: float) -> dict[str, Any]:
    config = engine_config(model_dir, cache_gb)
    if getattr(config.model_config.multimodal_config, "mm_device_do_normalize", False):
        config = engine_config(model_dir, cache_gb / 4)
    stock, ours = Side(config), Side(config)
    tokenizer = stock.renderer.get_tokenizer()
    markers = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
    asked, engine = rollouts(tokenizer), Engine(ours)
    front_end = FrontEnd(engine)
    await asyncio.gather(*(run(front_end, number, rollout, markers) for number, rollout in enumerate(asked)))

    found: list[str] = []
    num_known = num_seen = num_evicted = 0
    seen: set[str] = set()
    features: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (number, turn), request in engine.requests.items():
        rollout = asked[number]
        names = [image_name(array) for array in rollout.shown(turn)]
        pictures = [Image.fromarray(array) for array in rollout.shown(turn)]
        hashes = [feature.mm_hash for feature in request.mm_features]
        cached = stock.renderer.mm_processor_cache.is_cached(hashes)
        num_known += sum(cached)
        num_seen += len(names)
        num_evicted += sum(name in seen and not known for name, known in zip(hashes, cached, strict=True))
        seen |= set(hashes)
        for name, identifier in zip(names, hashes, strict=True):
            features[name][SETTINGS.index(rollout.settings)].add(identifier)
        prompt = {"prompt_token_ids": rollout.ids(turn, markers), "multi_modal_data": {"image": pictures}}
        prompt |= {"multi_modal_uuids": {"image": names}, "mm_processor_kwargs": rollout.settings}
        expected = stock.renderer._process_tokens(prompt)
        found += differences(stock.request(expected), request)
    under_both = [by_settings for by_settings in features.values() if len(by_settings) == len(SETTINGS)]
    order = [number for number, _ in engine.requests]
    return {
        "num_requests": len(order),
        "num_interleaved": sum(one != other for one, other in pairwise(order)),
        "num_images": num_seen,
        "num_cached": num_known,
        "num_evicted": num_evicted,
        "differences": sorted(set(found)),
        "num_under_both_settings": len(under_both),
        "num_shared_by_settings": sum(bool(by_settings[0] & by_settings[1]) for by_settings in under_both),
    }


if __name__ == "__main__":
    folder, gigabytes = sys.argv[1:]
    print(json.dumps(asyncio.run(compare(folder, float(gigabytes)))))
