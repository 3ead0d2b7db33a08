"""What our front end leans on in the installed vLLM, tried with a tiny model's processor and no engine.

    VERL_PLATFORM=cpu python -m tests.verl_plugin.front_end_facts MODEL_DIR

Prints one JSON object (see `test_vllm_front_end`).
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Generator
from contextlib import redirect_stdout
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
from vllm.multimodal.processing import TimingContext
from vllm.renderers import renderer_from_config

from verl_video_tools.verl_plugin.images import SentImages
from verl_video_tools.verl_plugin.vllm_front_end import FrontEnd, FrontEndServer, RequestPreparer, split_prompt

SETTINGS: tuple[dict[str, Any], ...] = ({}, {"max_pixels": 56 * 56})
SIZES = ((56, 84), (84, 84), (112, 56))
NUM_IMAGES = 12
MANY_IMAGES = 50


def drawn(number: int) -> list[np.ndarray]:
    noise = np.random.default_rng(0)
    return [noise.integers(0, 256, (*SIZES[i % len(SIZES)], 3), dtype=np.uint8) for i in range(number)]


def prompt(tokenizer: Any, number: int) -> list[int]:
    markers = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
    return tokenizer.encode("Look.") + [
        token for i in range(number) for token in (*tokenizer.encode(f" {i}"), *markers)
    ]


def names_of(number: int) -> list[str]:
    return [f"image-{i}" for i in range(number)]


def vllms_own(preparer: RequestPreparer, ids: list[int], arrays: list[np.ndarray], settings: dict[str, Any]) -> Any:
    """The request as vLLM's processor makes it in one call."""
    images = [Image.fromarray(array) for array in arrays]
    inputs = preparer._inputs(ids, images, names_of(len(arrays)), settings)
    return preparer._renderer.mm_processor.apply(inputs, TimingContext(enabled=False))


def hashes(preparer: RequestPreparer, tokenizer: Any) -> list[dict[str, bool]]:
    """Whether `hashes` are those of the processed request, by setting; whether they are the names themselves."""
    found = []
    ids, names = prompt(tokenizer, NUM_IMAGES), names_of(NUM_IMAGES)
    for settings in SETTINGS:
        processed = vllms_own(preparer, ids, drawn(NUM_IMAGES), settings)
        ours = preparer.hashes(ids, names, settings)
        found.append({"equal": ours == processed["mm_hashes"]["image"], "plain": ours == names})
    return found


def prepared(preparer: RequestPreparer, tokenizer: Any) -> dict[str, bool]:
    """What of a request of several pieces equals vLLM's own, first with all pixels and then with cached ones."""
    cache = preparer._renderer.mm_processor_cache
    ids, names, arrays = prompt(tokenizer, MANY_IMAGES), names_of(MANY_IMAGES), drawn(MANY_IMAGES)
    names[-1], arrays[-1] = names[0], arrays[0]  # an image may be shown twice
    image_hashes = preparer.hashes(ids, names, {})
    equal: dict[str, bool] = {}
    images = [Image.fromarray(array) for array in arrays]
    results: dict[str, list[Any]] = {"own": [], "ours": []}
    cache.clear_cache()
    for _ in ("new", "cached"):
        inputs = preparer._inputs(ids, images, names, {})
        results["own"].append(preparer._renderer.mm_processor.apply(inputs, TimingContext(enabled=False)))
    cache.clear_cache()
    for _ in ("new", "cached"):
        is_cached = preparer.is_cached(image_hashes)
        pixels = [None if known else array for known, array in zip(is_cached, arrays, strict=True)]
        results["ours"].append(preparer.prepare(ids, pixels, names, image_hashes, {}))
    for number, (own, ours) in enumerate(zip(*results.values(), strict=True)):
        for name in ("type", "prompt_token_ids", "mm_hashes", "mm_placeholders"):
            equal[f"{name} {number}"] = own[name] == ours[name]
        items = list(zip(own["mm_kwargs"]["image"], ours["mm_kwargs"]["image"], strict=True))
        # The second showing of an image is known to the cache by the time of its piece, and the engine's core has it.
        same = [_equal(*pair) for pair in items[:-1]]
        equal[f"mm_kwargs {number}"] = all(same) and set(own) == set(ours)
    return equal


def _equal(own: Any, ours: Any) -> bool:
    if own is None or ours is None:
        return own is ours
    tensors, expected = ours.get_data(), own.get_data()
    return set(tensors) == set(expected) and all(torch.equal(tensors[name], expected[name]) for name in expected)


def pieces(tokenizer: Any) -> dict[str, Any]:
    """The most images of a piece of a long prompt, and whether the pieces make up the prompt."""
    image_token_id = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    ids = [*prompt(tokenizer, MANY_IMAGES), *tokenizer.encode(" And then?")]
    found = split_prompt(ids, image_token_id, MANY_IMAGES)
    counts = [piece.count(image_token_id) for piece, _ in found]
    return {
        "most": max(counts),
        "whole": [token for piece, _ in found for token in piece] == ids,
        "counted": counts == [number for _, number in found],
        "odd_stays_whole": split_prompt([image_token_id, *ids], image_token_id, MANY_IMAGES)
        == [([image_token_id, *ids], MANY_IMAGES)],
    }


def tower_inputs(config: Any, preparer: RequestPreparer, tokenizer: Any, model_dir: str) -> dict[str, Any]:
    """What the vision tower of the engine computes on, beside what the actor's image processor makes."""
    arrays = drawn(NUM_IMAGES)
    preparer._renderer.mm_processor_cache.clear_cache()  # which keeps no features on this side
    processed = vllms_own(preparer, prompt(tokenizer, NUM_IMAGES), arrays, {})
    values = torch.cat([item["pixel_values"].data for item in processed["mm_kwargs"]["image"]])
    expected = AutoImageProcessor.from_pretrained(model_dir)(
        images=[torch.from_numpy(array).permute(2, 0, 1) for array in arrays], return_tensors="pt"
    )["pixel_values"]
    found = {"sent_dtype": str(values.dtype).removeprefix("torch."), "on_device": not values.is_floating_point()}
    if found["on_device"]:
        norm = input_norm(config)
        found["kept_by_a_reload"] = _is_kept_by_a_reload(norm, config)
        values = norm(values, torch.float32)
    return found | {"difference": float((values - expected).abs().max())}


def input_norm(config: Any) -> Any:
    """The layer that normalises 8-bit images on the device; vLLM 0.31 has given it a module of its own."""
    if hasattr(vision, "FusedInputNorm"):
        return vision.FusedInputNorm.from_model_config(config.model_config)
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.layers.fusion.mm_input_norm import build_mm_input_norm

    with set_current_vllm_config(config):
        return build_mm_input_norm(config.model_config)


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


class Reference(list):
    """Stands for a reference to an object in Ray's store."""

    def __await__(self) -> Generator[None, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return list(self)


async def other_interface(renderer: Any) -> dict[str, Any]:
    """What verl's stock path gets where this vLLM lacks a name: the images themselves."""
    arrays = drawn(3)
    lacking = SimpleNamespace(mm_processor_cache=None, mm_processor=SimpleNamespace(info=renderer.mm_processor.info))
    engine = Engine(lacking)
    printed = io.StringIO()
    with redirect_stdout(printed):
        front_end = FrontEnd(engine)
    sent = [SentImages(Reference(arrays), 0, tuple(names_of(3)))]
    request = {"prompt_token_ids": [1], "multi_modal_data": {"image": sent}, "mm_processor_kwargs": {"max_pixels": 9}}
    outputs = [each async for each in front_end.generate(request, request_id="one")]
    (asked, _), *_ = engine.asked
    shown = asked.pop("multi_modal_data")["image"]
    return {
        "lines": len(printed.getvalue().splitlines()),
        "names_what_is_missing": "'apply'" in printed.getvalue(),
        "outputs": outputs,
        "same_images": all(
            np.array_equal(np.asarray(image), array) for image, array in zip(shown, arrays, strict=True)
        ),
        "rest": asked == {"prompt_token_ids": [1], "mm_processor_kwargs": {"max_pixels": 9}},
    }


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
    tokenizer, preparer = renderer.get_tokenizer(), RequestPreparer(renderer)
    return {
        "hashes": hashes(preparer, tokenizer),
        "prepared": prepared(preparer, tokenizer),
        "pieces": pieces(tokenizer),
        "tower_inputs": tower_inputs(config, preparer, tokenizer, model_dir),
        "other_interface": asyncio.run(other_interface(renderer)),
        "passed_through": asyncio.run(passed_through(renderer)),
        "cleared": asyncio.run(cleared_while_preparing(renderer)),
        "wraps_text_model": wraps_text_model(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
