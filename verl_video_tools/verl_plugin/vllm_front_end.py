"""vLLM's front end for rollouts of many images: linear in what a turn adds, and not on the event loop.

vLLM 0.24.0 prepares a request in `AsyncLLM.add_request`, on the event loop of the server, and looks for each image's
placeholder from the beginning of the prompt: quadratic in images, on every turn, even if all are cached. vLLM 0.29.0
does neither. verl's server hands over the pixels of all images on every turn, with both.

Here the server gets references (`sent_images`). Those images that vLLM's processor cache lacks are fetched; vLLM's own
processor, or a copy of it that places in one pass, prepares the request in a thread; vLLM gets the result as its
`EngineInput`. Placeholders, ids, hashes and features equal those of vLLM itself for the same `multi_modal_uuids`.

`VVT_VLLM_FRONT_END=stock` leaves verl's server and vLLM's front end as they are; agent loops then send PIL images.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import ray
from PIL import Image
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.multimodal.parse import parse_mm_uuids
from vllm.multimodal.processing.context import TimingContext
from vllm.multimodal.processing.inputs import ProcessorInputs
from vllm.multimodal.processing.processor import PlaceholderFeaturesInfo

from verl_video_tools.verl_plugin.front_end_switch import front_end_is_active
from verl_video_tools.verl_plugin.sent_images import SentImages, fetch_missing

_MODALITY = "image"


class LinearPlacement:
    """Stands before a processor of vLLM in the list of base classes: images are placed in one pass over the prompt."""

    info: Any

    def _apply_prompt_updates(
        self, token_ids: list[int], mm_prompt_updates: Mapping[str, Sequence[Sequence[Any]]]
    ) -> tuple[list[int], Mapping[str, list[PlaceholderFeaturesInfo]]]:
        """Replace the n-th placeholder by the tokens of the n-th image, as vLLM does where each has one replacement of
        a single token that all share. Anything else is left to vLLM."""
        updates = [each[0] for each in mm_prompt_updates.get(_MODALITY, ()) if len(each) == 1]
        tokenizer = self.info.get_tokenizer()
        targets = {_token(update.target, tokenizer) for update in updates}
        target = targets.pop() if len(targets) == 1 else None
        is_plain = set(mm_prompt_updates) == {_MODALITY} and len(updates) == len(mm_prompt_updates[_MODALITY])
        if not is_plain or target is None or token_ids.count(target) != len(updates):
            return super()._apply_prompt_updates(token_ids, mm_prompt_updates)  # type: ignore[misc]
        expanded: list[int] = []
        placeholders: list[PlaceholderFeaturesInfo] = []
        end = 0
        for number, update in enumerate(updates):
            start = token_ids.index(target, end)
            expanded += token_ids[end:start]
            content = update.content
            tokens = content.full if isinstance(content.full, list) else tokenizer.encode(content.full)
            is_embed = None if content.is_embed is None else content.is_embed(tokenizer, content.full)
            placeholders.append(PlaceholderFeaturesInfo(_MODALITY, number, len(expanded), list(tokens), is_embed))
            expanded += tokens
            end = start + 1
        return expanded + token_ids[end:], {_MODALITY: placeholders}


def _token(target: Any, tokenizer: Any) -> int | None:
    """The only token of an update's target; None if it has several, or is a position."""
    if isinstance(target, str):
        target = tokenizer.encode(target, add_special_tokens=False)
    return target[0] if isinstance(target, list) and len(target) == 1 else None


def with_linear_placement(processor: Any) -> Any:
    """A processor like this one, with the same cache, that places images in one pass: itself, if vLLM's does so."""
    if hasattr(processor, "_apply_token_matches_with_placeholders"):
        return processor
    kind = type(f"Linear{type(processor).__name__}", (LinearPlacement, type(processor)), {})
    return kind(processor.info, processor.dummy_inputs, cache=processor.cache)


def image_hashes(processor: Any, inputs: ProcessorInputs) -> list[str]:
    """The names under which vLLM's caches know a request's images, as `processor.apply` computes them.

    Where `get_mm_hashes` asks for the algorithm, it is in the configuration; vLLM 0.24 reads it from the environment.
    """
    info = processor.info
    arguments = {"model_id": info.model_id}
    if "hash_algorithm" in inspect.signature(inputs.get_mm_hashes).parameters:
        arguments["hash_algorithm"] = info.ctx.get_mm_config().mm_hasher_algorithm
    return inputs.get_mm_hashes(**arguments)[_MODALITY]


class FrontEnd:
    """An `AsyncLLM` that takes `SentImages`. All else is the engine's own.

    Requests are prepared one after the other, in the order in which they are handed to the engine: its core mirrors the
    order in which images are looked up in the processor cache.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._processor = with_linear_placement(engine.renderer.mm_processor)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vllm_front_end")
        self._turn = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, prompt: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        sent = (prompt.get("multi_modal_data") or {}).get(_MODALITY) if isinstance(prompt, Mapping) else None
        if not sent or not isinstance(sent[0], SentImages):
            async for output in self._engine.generate(prompt, *args, **kwargs):
                yield output
            return
        async with self._turn:
            engine_input = await self._prepare(prompt, sent)
            outputs = self._engine.generate(engine_input, *args, **kwargs)
            first = asyncio.ensure_future(anext(outputs))
            await asyncio.sleep(0)  # the engine now has the request
        try:
            yield await first
            async for output in outputs:
                yield output
        finally:
            first.cancel()
            await outputs.aclose()

    # Each clears vLLM's processor cache here and in the engine's core, one after the other: a request prepared between
    # would count on images that only one of them still has, and fail.

    async def pause_generation(self, *args: Any, **kwargs: Any) -> None:
        async with self._turn:
            await self._engine.pause_generation(*args, **kwargs)

    async def sleep(self, *args: Any, **kwargs: Any) -> None:
        async with self._turn:
            await self._engine.sleep(*args, **kwargs)

    async def reset_mm_cache(self) -> None:
        async with self._turn:
            await self._engine.reset_mm_cache()

    async def _prepare(self, prompt: Mapping[str, Any], sent: Sequence[SentImages]) -> Any:
        names = [name for images in sent for name in images.names]
        kwargs = prompt.get("mm_processor_kwargs") or {}
        probe = self._inputs(prompt["prompt_token_ids"], [None] * len(names), names, kwargs)
        hashes = image_hashes(self._processor, probe)
        cache = self._processor.cache
        is_cached = [False] * len(names) if cache is None else cache.is_cached(hashes)
        pixels = await fetch_missing(sent, is_cached)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, self._apply, prompt["prompt_token_ids"], pixels, names, kwargs
        )

    def _apply(self, ids: list[int], pixels: Sequence[Any], names: Sequence[str], kwargs: Mapping[str, Any]) -> Any:
        images = [None if array is None else Image.fromarray(array) for array in pixels]
        engine_input = self._processor.apply(self._inputs(ids, images, names, kwargs), TimingContext(enabled=False))
        self._engine.renderer.update_mm_cache_stats()
        return engine_input

    def _inputs(
        self, ids: list[int], images: Sequence[Any], names: Sequence[str], kwargs: Mapping[str, Any]
    ) -> ProcessorInputs:
        items = self._processor.info.parse_mm_data({_MODALITY: list(images)})
        return ProcessorInputs(ids, items, parse_mm_uuids({_MODALITY: list(names)}), hf_processor_mm_kwargs=kwargs)


class FrontEndServer(vLLMHttpServer):
    """verl's server with `FrontEnd` before its engine, where the model sees images: it may serve a judge as well."""

    engine: Any

    async def run_server(self, args: Any) -> None:
        await super().run_server(args)
        if front_end_is_active() and self.engine.renderer.mm_processor is not None:
            self.engine = FrontEnd(self.engine)


class FrontEndReplica(vLLMReplica):
    """verl's replica, launching `FrontEndServer`, or what a subclass says."""

    own_server: ClassVar[type] = FrontEndServer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(self.own_server)
