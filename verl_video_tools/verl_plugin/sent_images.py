"""Images on their way from an agent loop worker to the inference server: the pixels once, then their names.

verl sends all images of a rollout with every turn, pickled one by one on the event loop: 106 MB a turn for 752 frames
of 280x168. Here each message's images become one object of Ray, those that a group starts with one for all its
rollouts. A turn then sends references and names, and the server fetches what it has not processed yet
(`vllm_front_end`).

The name of an image is a hash of its pixels and size, so different pixels never share one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import ray

from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import FrameRecord, ImagePart


class ImageObject:
    """Images of one message in Ray's object store.

    Attributes:
        reference: to a list of uint8 arrays (height, width, 3).
        names: of each image.
    """

    def __init__(self, reference: Any, names: Sequence[str]) -> None:
        self.reference = reference
        self.names = tuple(names)


@dataclass(frozen=True)
class SentImages:
    """Some images of an `ImageObject`, as the server gets them.

    Attributes:
        first: number in the object of the first one; the others follow it.
        names: one for each.
    """

    reference: Any
    first: int
    names: tuple[str, ...]


async def fetch_missing(sent: Sequence[SentImages], is_cached: Sequence[bool]) -> list[npt.NDArray[np.uint8] | None]:
    """The images that the server's cache lacks, in their order, with None for each that it has.

    Args:
        is_cached: one entry per image, in the order of `sent`. An object is fetched only where an image of it is not.
    """
    images: list[npt.NDArray[np.uint8] | None] = []
    for piece in sent:
        cached = is_cached[len(images) : len(images) + len(piece.names)]
        stored = [] if all(cached) else await piece.reference
        images += [None if known else stored[piece.first + number] for number, known in enumerate(cached)]
    return images


def image_name(pixels_HWC: npt.NDArray[np.uint8]) -> str:
    """A hash of an image's size and pixels."""
    digest = hashlib.blake2b(repr(pixels_HWC.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels_HWC).data)
    return digest.hexdigest()


def store(images: Sequence[ImagePart]) -> ImageObject:
    """Copy images into the object store; for a thread, since hashing and copying take their time.

    Raises:
        InvariantError: an image has no pixels.
    """
    arrays = [image.pixels_HWC for image in images]
    if any(array is None for array in arrays):
        raise InvariantError("an image without pixels is to be sent to the inference server")
    return ImageObject(ray.put(arrays), [image_name(array) for array in arrays if array is not None])


_Shown = tuple[str, tuple[FrameRecord, ...]]
"""A group, and which frames its rollouts start with."""
_initial: WeakValueDictionary[_Shown, ImageObject] = WeakValueDictionary()
_in_progress: dict[_Shown, asyncio.Task[ImageObject]] = {}


class ImageSender:
    """The images of one rollout. Keeps its objects alive for as long as it lives.

    Args:
        group: what the rollouts of a group have in common; those that start with the same frames share them.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._places: dict[int, tuple[ImageObject, int]] = {}
        self._kept: list[ImagePart] = []  # an identity is an image's only while it lives

    async def send(self, images: Sequence[ImagePart]) -> list[SentImages]:
        """References to images, in their order. Those that no turn has shown before are stored first."""
        if new := [image for image in images if id(image) not in self._places]:
            stored = await (asyncio.to_thread(store, new) if self._places else self._shared(new))
            self._places |= {id(image): (stored, number) for number, image in enumerate(new)}
            self._kept += new
        pieces: list[tuple[ImageObject, int, int]] = []
        for stored, number in (self._places[id(image)] for image in images):
            if pieces and pieces[-1][0] is stored and pieces[-1][2] == number:
                pieces[-1] = (stored, pieces[-1][1], number + 1)
            else:
                pieces.append((stored, number, number + 1))
        return [SentImages(stored.reference, first, stored.names[first:stop]) for stored, first, stop in pieces]

    async def _shared(self, images: Sequence[ImagePart]) -> ImageObject:
        key = self._group, tuple(image.record for image in images)
        if (found := _initial.get(key)) is not None:
            return found
        task = _in_progress.get(key)
        if task is None:
            task = _in_progress[key] = asyncio.create_task(asyncio.to_thread(store, images))
            task.add_done_callback(lambda _: _in_progress.pop(key, None))
        stored = await asyncio.shield(task)  # a rollout that is cancelled must not take the others' frames along
        _initial[key] = stored
        return stored
