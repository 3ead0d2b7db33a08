"""What our front end leans on in the installed vLLM, tried with a tiny model's processor and no engine.

    VERL_PLATFORM=cpu python -m tests.verl_plugin.front_end_facts MODEL_DIR

Prints one JSON object (see `test_vllm_front_end`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.models import vision
from vllm.multimodal.parse import parse_mm_uuids
from vllm.multimodal.processing.context import TimingContext
from vllm.multimodal.processing.inputs import ProcessorInputs
from vllm.renderers import renderer_from_config

from verl_video_tools.verl_plugin.sent_images import SentImages
from verl_video_tools.verl_plugin.vllm_front_end import FrontEnd, FrontEndServer, image_hashes, with_linear_placement

SETTINGS: tuple[dict[str, Any], ...] = ({}, {"max_pixels": 56 * 56})
SIZES = ((56, 84), (84, 84), (112, 56))
NUM_IMAGES = 12
WORK_SIZES = (50, 200)


class Counted(list[int]):
    """A prompt that counts the tokens which are looked at."""

    work = 0

    def index(self, value: int, start: Any = 0, stop: Any = sys.maxsize) -> int:
        try:
            found = super().index(value, start, stop)
        except ValueError:
            found = min(stop, len(self)) - 1
            self.work += found - start + 1
            raise
        self.work += found - start + 1
        return found

    def count(self, value: int) -> int:
        self.work += len(self)
        return super().count(value)

    def __getitem__(self, key: Any) -> Any:
        self.work += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[int]:
        self.work += len(self)
        return super().__iter__()


def drawn(number: int) -> list[np.ndarray]:
    noise = np.random.default_rng(0)
    return [noise.integers(0, 256, (*SIZES[i % len(SIZES)], 3), dtype=np.uint8) for i in range(number)]


def inputs_of(processor: Any, ids: list[int], arrays: list[np.ndarray], settings: dict[str, Any]) -> ProcessorInputs:
    names = [f"image-{number}" for number in range(len(arrays))]
    items = processor.info.parse_mm_data({"image": [Image.fromarray(array) for array in arrays]})
    return ProcessorInputs(ids, items, parse_mm_uuids({"image": names}), hf_processor_mm_kwargs=settings)


def prompt(tokenizer: Any, number: int) -> list[int]:
    markers = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
    return tokenizer.encode("Look.") + [
        token for i in range(number) for token in (*tokenizer.encode(f" {i}"), *markers)
    ]


def hashes(processor: Any, tokenizer: Any) -> list[dict[str, bool]]:
    """Whether `image_hashes` are those of the processed request, by setting; whether they are the names themselves."""
    found = []
    for settings in SETTINGS:
        inputs = inputs_of(processor, prompt(tokenizer, NUM_IMAGES), drawn(NUM_IMAGES), settings)
        processed = processor.apply(inputs, TimingContext(enabled=False))
        ours = image_hashes(processor, inputs)
        names = list(inputs.mm_uuid_items["image"])
        found.append({"equal": ours == processed["mm_hashes"]["image"], "plain": ours == names})
    return found


def tokens_looked_at(processor: Any, tokenizer: Any, number: int) -> float:
    """While `number` images are placed, for each token of the prompt and of the result."""
    caught: dict[str, Any] = {}

    def catch(self: Any, token_ids: list[int], updates: Any) -> Any:
        caught["updates"] = updates
        return super(kind, self)._apply_prompt_updates(token_ids, updates)

    kind = type("Catching", (type(processor),), {"_apply_prompt_updates": catch})
    copy = kind(processor.info, processor.dummy_inputs, cache=processor.cache)
    ids = prompt(tokenizer, number)
    expected = copy.apply(inputs_of(copy, ids, drawn(number), {}), TimingContext(enabled=False))
    counted = Counted(ids)
    placed, places = processor._apply_prompt_updates(counted, caught["updates"])
    assert placed == expected["prompt_token_ids"] and len(places["image"]) == number
    return counted.work / len(ids)


def tower_inputs(config: Any, processor: Any, tokenizer: Any, model_dir: str) -> dict[str, Any]:
    """What the vision tower of the engine computes on, beside what the actor's image processor makes."""
    arrays = drawn(NUM_IMAGES)
    processor.cache.clear_cache()  # which keeps no features on this side
    processed = processor.apply(
        inputs_of(processor, prompt(tokenizer, NUM_IMAGES), arrays, {}), TimingContext(enabled=False)
    )
    values = torch.cat([item["pixel_values"].data for item in processed["mm_kwargs"]["image"]])
    expected = AutoImageProcessor.from_pretrained(model_dir)(
        images=[torch.from_numpy(array).permute(2, 0, 1) for array in arrays], return_tensors="pt"
    )["pixel_values"]
    found = {"sent_dtype": str(values.dtype).removeprefix("torch."), "on_device": not values.is_floating_point()}
    if found["on_device"]:
        norm = vision.FusedInputNorm.from_model_config(config.model_config)
        found["kept_by_a_reload"] = _is_kept_by_a_reload(norm, config)
        values = norm(values, torch.float32)
    return found | {"difference": float((values - expected).abs().max())}


def _is_kept_by_a_reload(norm: Any, config: Any) -> bool:
    """No weight is sent for the constants: what `reload_weights` does to a layer without weights must leave them."""
    layerwise.record_metadata_for_reloading(norm)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    layerwise.initialize_layerwise_reload(norm)
    layerwise.finalize_layerwise_reload(norm, config.model_config)
    after = dict(norm.named_buffers())
    return before.keys() == after.keys() and all(torch.equal(after[name], value) for name, value in before.items())


class Engine:
    """Stands for `AsyncLLM`: notes the keyword arguments that it is given, and when it clears caches."""

    def __init__(self, renderer: Any) -> None:
        self.renderer = renderer
        self.asked: list[tuple[Any, dict[str, Any]]] = []
        self.cleared: list[str] = []

    async def pause_generation(self, **_: Any) -> None:
        self.cleared.append("pause_generation")

    async def sleep(self, **_: Any) -> None:
        self.cleared.append("sleep")

    async def reset_mm_cache(self) -> None:
        self.cleared.append("reset_mm_cache")

    async def generate(self, engine_input: Any, **kwargs: Any) -> Any:
        self.asked.append((engine_input, kwargs))
        yield "output"


async def passed_through(renderer: Any) -> bool:
    """A request without references reaches the engine as it is."""
    engine = Engine(renderer)
    text = {"prompt_token_ids": [1, 2], "multi_modal_data": {}}
    outputs = [each async for each in FrontEnd(engine).generate(text, request_id="one", priority=3)]
    return outputs == ["output"] and engine.asked == [(text, {"request_id": "one", "priority": 3})]


class SlowFrontEnd(FrontEnd):
    """Prepares a request until it is told to end."""

    async def _prepare(self, *_: Any) -> Any:
        self.preparing.set()
        await self.may_end.wait()
        return "prepared"


async def cleared_while_preparing(renderer: Any) -> dict[str, list[str]]:
    """Which caches were cleared while a request was prepared, and which once it was handed over."""
    engine = Engine(renderer)
    front_end = SlowFrontEnd(engine)
    front_end.preparing, front_end.may_end = asyncio.Event(), asyncio.Event()
    sent = {"prompt_token_ids": [1], "multi_modal_data": {"image": [SentImages(None, 0, ("one",))]}}
    request = asyncio.ensure_future(anext(front_end.generate(sent)))
    await front_end.preparing.wait()
    clearings = [
        asyncio.ensure_future(clear())
        for clear in (front_end.pause_generation, front_end.sleep, front_end.reset_mm_cache)
    ]
    await asyncio.sleep(0.01)
    during = [*engine.cleared]
    front_end.may_end.set()
    await asyncio.gather(request, *clearings)
    return {"during": during, "after": engine.cleared}


def wraps_text_model() -> bool:
    """Whether a server of a model without images, such as a judge, gets a front end."""

    async def run_stock_server(self: Any, args: Any) -> None:
        self.engine = SimpleNamespace(renderer=SimpleNamespace(mm_processor=None))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(vLLMHttpServer, "run_server", run_stock_server)
        server = object.__new__(FrontEndServer)
        asyncio.run(server.run_server(None))
    return isinstance(server.engine, FrontEnd)


def main(model_dir: str) -> dict[str, Any]:
    config = AsyncEngineArgs(
        model_dir,
        max_model_len=8192,
        enforce_eager=True,
        dtype="float32",
        limit_mm_per_prompt={"image": 4096, "video": 0},
        mm_processor_cache_gb=1,
    ).create_engine_config()
    renderer = renderer_from_config(config)
    tokenizer, stock = renderer.get_tokenizer(), renderer.mm_processor
    processor = with_linear_placement(stock)
    return {
        "hashes": hashes(processor, tokenizer),
        "work": [tokens_looked_at(processor, tokenizer, number) for number in WORK_SIZES],
        "is_vllms_own": processor is stock,
        "tower_inputs": tower_inputs(config, processor, tokenizer, model_dir),
        "passed_through": asyncio.run(passed_through(renderer)),
        "cleared": asyncio.run(cleared_while_preparing(renderer)),
        "wraps_text_model": wraps_text_model(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
