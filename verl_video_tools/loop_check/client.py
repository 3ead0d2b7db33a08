"""The tap between an agent loop and the inference server.

The loop gets a `TappedClient` in place of verl's `LLMServerClient`. It writes down what the engine was given and has
returned, and plants the faults of the rollout that is running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from verl_video_tools.loop_check.faults import Answer, Fault, GivenImage, Request, Tokens
from verl_video_tools.loop_check.images import Pixels, given_images
from verl_video_tools.loop_check.records import Generation, TapFolder


@dataclass
class TappedRollout:
    """The rollout that is running in this asyncio task.

    Attributes:
        fault: the name that stands in the records.
        plants: what it plants; the base class where nothing is planted here.
        placed: what the worker has asked positions for, in order: patches of the images, the positions, and whether
            the fault has changed them.
        is_planted: the fault has changed a request or an answer.
        is_told: its rows have been written.
    """

    uid: str
    session_id: int
    step: int
    loop: str
    fault: str | None
    plants: Fault
    placed: list[tuple[list[list[int]], torch.Tensor, bool]] = field(default_factory=list)
    is_planted: bool = False
    is_told: bool = False


running: ContextVar[TappedRollout | None] = ContextVar("running", default=None)
"""None in validation, which is not tapped."""


class TappedClient:
    """verl's client of the inference servers. All but `generate` is its own.

    Args:
        client: verl's.
    """

    def __init__(self, client: Any, folder: TapFolder, tokens: Tokens) -> None:
        self._client, self._folder, self._tokens = client, folder, tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(self, request_id: str, **request: Any) -> Any:
        """As verl's client. What a loop passes beside ids and images goes on unchanged."""
        rollout = running.get()
        if rollout is None:
            return await self._client.generate(request_id, **request)
        plants, tokens = rollout.plants, self._tokens
        images = await given_images(request.get("image_data"))
        asked = Request(tuple(request["prompt_ids"]), tuple(image for image, _ in images))
        given = plants.give(asked, tokens)
        read = plants.read(given)
        if read != asked:
            rollout.is_planted = True
            request |= {"prompt_ids": list(read.ids), "image_data": [image.handle for image in read.images]}
        output = await self._client.generate(request_id, **request)

        log_probs = None if output.log_probs is None else tuple(output.log_probs)
        own = Answer(tuple(output.token_ids), log_probs)
        sampled = plants.sample(own, tokens)
        taken = plants.take(sampled, tokens)
        rollout.is_planted |= taken != own
        line = Generation(
            uid=rollout.uid,
            session_id=rollout.session_id,
            step=rollout.step,
            loop=rollout.loop,
            fault=rollout.fault,
            planted=read != asked or taken != own,
            given_ids=list(given.ids),
            images=[image.name for image in given.images],
            returned_ids=list(sampled.ids),
            log_probs=list(sampled.log_probs or ()),
            version=_version(output.extra_fields),
        )
        await asyncio.to_thread(self._write, line, images)
        if taken == own:
            return output
        changed = {
            "token_ids": list(taken.ids),
            "log_probs": None if log_probs is None else list(taken.log_probs or ()),
        }
        return output.model_copy(update=changed)

    def _write(self, line: Generation, images: Sequence[tuple[GivenImage, Pixels]]) -> None:
        for image, pixels_HWC in images:
            self._folder.keep_image(image.name, pixels_HWC)
        self._folder.write(line)


def _version(extra_fields: dict[str, Any]) -> int | None:
    """None if the engine does not tell, or if its weights have changed while it generated."""
    newest = extra_fields.get("global_steps")
    versions = {extra_fields.get("min_global_steps", newest), extra_fields.get("max_global_steps", newest)}
    version = versions.pop() if len(versions) == 1 else None
    return None if version is None else int(version)
