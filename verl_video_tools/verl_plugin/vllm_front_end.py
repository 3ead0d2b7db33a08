"""The engine port: what our rollouts need of vLLM beyond verl's server, by vLLM's public input types.

vLLM 0.24.0 prepares a request in `AsyncLLM.add_request`, on the event loop of the server, and searches the place of
every remaining image for each image: quadratic in images, on every turn, even if all are cached. vLLM 0.29.0 does
neither. verl's server hands over the pixels of all images on every turn, with both.

Here the server gets references (`images.SentImages`). It fetches the images that vLLM's processor cache lacks, and
vLLM's own processor prepares the request in a thread, a few images at a time. vLLM gets the result as its `EngineInput`
(`vllm.inputs.mm_input`). Placeholders, ids, hashes and features equal those of vLLM itself for the same
`multi_modal_uuids`.

Where a vLLM lacks one of the names, verl's stock path prepares requests, and the server says so in one line.
`VVT_VLLM_FRONT_END=stock` leaves verl's server as it is; agent loops then send PIL images.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import ray
from PIL import Image
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from verl_video_tools.verl_plugin.images import SentImages, fetch_missing, front_end_is_active

_MODALITY = "image"
_IMAGES_AT_ONCE = 16
"""Images that vLLM's processor places in one call, so that the quadratic search of vLLM 0.24 stays short."""


class RequestPreparer:
    """Makes the `EngineInput` of a request from token ids and images, as the renderer of an engine would.

    Args:
        renderer: of an `AsyncLLM` whose model sees images.

    Raises:
        ImportError, AttributeError: this vLLM lacks one of the names that are used here.
    """

    def __init__(self, renderer: Any) -> None:
        from vllm.inputs import mm_input
        from vllm.multimodal.inputs import MultiModalKwargsItems
        from vllm.multimodal.parse import parse_mm_uuids
        from vllm.multimodal.processing import ProcessorInputs, TimingContext

        self._mm_input, self._kwargs_items = mm_input, MultiModalKwargsItems
        self._parse_uuids, self._inputs_class = parse_mm_uuids, ProcessorInputs
        self._timing = TimingContext(enabled=False)
        self._renderer, self._cache = renderer, renderer.mm_processor_cache
        self._info, self._process = renderer.mm_processor.info, renderer.mm_processor.apply
        self._image_token_id = renderer.model_config.hf_config.image_token_id
        # vLLM 0.31 has the cache in the inputs; before that the processor has it.
        takes_cache = "cache" in inspect.signature(ProcessorInputs).parameters
        self._cache_argument = {"cache": self._cache} if takes_cache else {}

    def hashes(self, ids: list[int], names: Sequence[str], kwargs: Mapping[str, Any]) -> list[str]:
        """The names under which vLLM's caches know a request's images.

        Where `get_mm_hashes` asks for the algorithm, it is in the configuration; vLLM 0.24 reads it from the
        environment.
        """
        inputs = self._inputs(ids, [None] * len(names), names, kwargs)
        arguments = {"model_id": self._info.model_id}
        if "hash_algorithm" in inspect.signature(inputs.get_mm_hashes).parameters:
            arguments["hash_algorithm"] = self._info.ctx.get_mm_config().mm_hasher_algorithm
        hashes: list[str] = inputs.get_mm_hashes(**arguments)[_MODALITY]
        return hashes

    def is_cached(self, hashes: list[str]) -> list[bool]:
        """Whether the processor cache holds each image; the engine's core then holds its features."""
        return [False] * len(hashes) if self._cache is None else list(self._cache.is_cached(hashes))

    def prepare(
        self,
        ids: list[int],
        pixels: Sequence[npt.NDArray[np.uint8] | None],
        names: Sequence[str],
        hashes: Sequence[str],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The `EngineInput` of a request.

        Args:
            pixels: of each image; None where the cache holds it.
        """
        images = pil_images(pixels)
        if self._cache is not None:
            # As vLLM does for all images of a request: a new one must not evict another of the same request.
            for image_hash in hashes:
                self._cache.touch_sender_cache_item(image_hash)
        token_ids: list[int] = []
        items: list[Any] = []
        image_hashes: list[str] = []
        places: list[Any] = []
        number = 0
        for piece, num_images in split_prompt(ids, self._image_token_id, len(names)):
            stop = number + num_images
            inputs = self._inputs(piece, images[number:stop], names[number:stop], kwargs)
            number = stop
            done = self._process(inputs, self._timing)
            places += [
                replace(place, offset=place.offset + len(token_ids)) for place in done["mm_placeholders"][_MODALITY]
            ]
            token_ids += done["prompt_token_ids"]
            items += done["mm_kwargs"][_MODALITY]
            image_hashes += done["mm_hashes"][_MODALITY]
        self._renderer.update_mm_cache_stats()
        return self._mm_input(
            token_ids, self._kwargs_items({_MODALITY: items}), {_MODALITY: image_hashes}, {_MODALITY: places}
        )

    def _inputs(self, ids: list[int], images: Sequence[Any], names: Sequence[str], kwargs: Mapping[str, Any]) -> Any:
        items = self._info.parse_mm_data({_MODALITY: list(images)})
        uuids = self._parse_uuids({_MODALITY: list(names)})
        return self._inputs_class(ids, items, uuids, hf_processor_mm_kwargs=kwargs, **self._cache_argument)


def split_prompt(ids: list[int], image_token_id: int, num_images: int) -> list[tuple[list[int], int]]:
    """A prompt in pieces of at most `_IMAGES_AT_ONCE` images each, and how many images each has.

    A prompt whose placeholders are not one per image stays whole: vLLM then says what is wrong with it.
    """
    ends = [position + 1 for position, token in enumerate(ids) if token == image_token_id]
    if len(ends) != num_images:
        return [(ids, num_images)]
    pieces: list[tuple[list[int], int]] = []
    start = 0
    for first in range(0, num_images, _IMAGES_AT_ONCE):
        stop = min(first + _IMAGES_AT_ONCE, num_images)
        end = ends[stop - 1] if stop < num_images else len(ids)
        pieces.append((ids[start:end], stop - first))
        start = end
    return pieces


def request_preparer(renderer: Any) -> RequestPreparer | None:
    """None where this vLLM lacks a name that it needs, which is said in one line."""
    try:
        return RequestPreparer(renderer)
    except (ImportError, AttributeError) as error:
        print(
            f"[verl_video_tools] this vLLM has another interface ({error}): its own front end prepares requests, "
            "slower with many images",
            flush=True,
        )
        return None


class FrontEnd:
    """An `AsyncLLM` that takes `SentImages`. All else is the engine's own.

    Requests are prepared one after the other, in the order in which they are handed to the engine: its core mirrors the
    order in which images are looked up in the processor cache.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._preparer = request_preparer(engine.renderer)
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
        if self._preparer is None:
            pixels = await fetch_missing(sent, [False] * len(names))
            return {**prompt, "multi_modal_data": {_MODALITY: await asyncio.to_thread(pil_images, pixels)}}
        ids, kwargs = prompt["prompt_token_ids"], prompt.get("mm_processor_kwargs") or {}
        hashes = self._preparer.hashes(ids, names, kwargs)
        pixels = await fetch_missing(sent, self._preparer.is_cached(hashes))
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self._preparer.prepare, ids, pixels, names, hashes, kwargs
        )


def pil_images(pixels: Sequence[npt.NDArray[np.uint8] | None]) -> list[Image.Image | None]:
    return [None if array is None else Image.fromarray(array) for array in pixels]


class FrontEndServer(vLLMHttpServer):
    """verl's server with `FrontEnd` before its engine, where the model sees images: it may serve a judge as well."""

    engine: Any

    async def run_server(self, args: Any) -> None:
        await super().run_server(args)
        if front_end_is_active() and self.engine.renderer.mm_processor is not None:
            self.engine = FrontEnd(self.engine)


class FrontEndReplica(vLLMReplica):
    """verl's replica, launching `FrontEndServer`, or what a subclass says."""

    http_server_class: ClassVar[type] = FrontEndServer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(self.http_server_class)
