"""Images of rollouts in TransferQueue: 8-bit, once for all rollouts that were shown the same ones.

verl keeps the processor's tensors in the row of each sequence. A group of 16 rollouts then holds its initial frames 16
times, each in floating point and doubled in time: 16 x 289 MB for 512 frames of 280x168, of which 72 MB are pixels.
Here a row refers to blocks of images (`pixel_values.StoredPixelValues`), and whoever runs the model makes the tensors.

A block lies in a partition of its own, under `<uid>_<name>`: verl's replay buffer takes every key of its partitions for
a prompt or a sequence. It belongs to the storage units, so it outlives the worker that has put it there.
`release` frees the blocks of all groups that are not waiting for their training any more.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import ImagePart

PARTITION_ID = "video_tools_images"


@dataclass(frozen=True, slots=True)
class ImageSlice:
    """Consecutive images of a block: those from `first` up to, but without, `stop`."""

    key: str
    first: int
    stop: int


def block_name(images: Sequence[ImagePart]) -> str:
    """A name that two rollouts of a group have in common if they were shown the same frames at the same sizes."""
    return "initial-" + hashlib.sha1(repr([image.record for image in images]).encode()).hexdigest()


def pack(images: Sequence[ImagePart]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels of images as one tensor, uint8 (bytes,), and their sizes, int32 (images, 2): height and width.

    Raises:
        InvariantError: an image has no pixels.
    """
    sizes_N2 = np.array([(image.record.height, image.record.width) for image in images], dtype=np.int32)
    pixels = np.empty(int(sizes_N2.prod(axis=1, dtype=np.int64).sum()) * 3, dtype=np.uint8)
    first = 0
    for image in images:
        if image.pixels_HWC is None:
            raise InvariantError("an image without pixels is to be stored")
        pixels[first : first + image.pixels_HWC.size] = image.pixels_HWC.reshape(-1)
        first += image.pixels_HWC.size
    return torch.from_numpy(pixels), torch.from_numpy(sizes_N2)


def unpack(pixels: torch.Tensor, sizes_N2: torch.Tensor) -> list[torch.Tensor]:
    """The images, each uint8 (3, height, width), as views of `pixels`."""
    images, first = [], 0
    for height, width in sizes_N2.tolist():
        stop = first + height * width * 3
        images.append(pixels[first:stop].view(height, width, 3).permute(2, 0, 1))
        first = stop
    return images


def put_block(key: str, images: Sequence[ImagePart], *, shared: bool) -> None:
    """Store the pixels of images. Blocks the thread, not the queue's own event loop.

    Raises:
        InvariantError: an image has no pixels.
    """
    pixels, sizes_N2 = pack(images)
    fields = TensorDict({"pixels": pixels[None], "sizes": sizes_N2[None]}, [1])
    tags = [{"num_bytes": pixels.nbytes, "shared": shared}]
    tq.kv_batch_put(keys=[key], partition_id=PARTITION_ID, fields=fields, tags=tags)


def get_block(key: str) -> list[torch.Tensor]:
    """The images of a block.

    Raises:
        InvariantError: the queue does not hold it.
    """
    try:
        data = tq.kv_batch_get(keys=[key], partition_id=PARTITION_ID, select_fields=["pixels", "sizes"])
    except (RuntimeError, ValueError) as error:
        raise InvariantError(f"the images {key!r} of a rollout are not in the queue any more: {error}") from error
    return unpack(data["pixels"][0], data["sizes"][0])


MAX_REMEMBERED = 4096
"""Blocks that a writer knows to be on their way."""


class BlockWriter:
    """Puts the images of a worker's rollouts into the queue, the initial frames of a group once.

    All rollouts of a group run in one worker, so it is enough to remember here what is on its way.
    """

    def __init__(self) -> None:
        self._shared: dict[str, asyncio.Task[None]] = {}

    async def write(self, uid: str, session_id: int, num_initial: int, images: Sequence[ImagePart]) -> list[ImageSlice]:
        """Store the images of one rollout, and return where each lies.

        Args:
            num_initial: how many of them, from the first on, are the rollout's initial frames.
        """
        slices: list[ImageSlice] = []
        if initial := images[:num_initial]:
            key = f"{uid}_{block_name(initial)}"
            await self._put_once(key, initial)
            slices += [ImageSlice(key, i, i + 1) for i in range(len(initial))]
        if called := images[num_initial:]:
            key = f"{uid}_{session_id}-called"
            await asyncio.to_thread(put_block, key, called, shared=False)
            slices += [ImageSlice(key, i, i + 1) for i in range(len(called))]
        return slices

    async def _put_once(self, key: str, images: Sequence[ImagePart]) -> None:
        task = self._shared.get(key)
        if task is None:
            while len(self._shared) >= MAX_REMEMBERED:
                del self._shared[next(iter(self._shared))]
            task = asyncio.create_task(asyncio.to_thread(put_block, key, images, shared=True))
            self._shared[key] = task
        try:
            await asyncio.shield(task)  # a rollout that is cancelled must not take the others' frames along
        except Exception:
            self._shared.pop(key, None)  # the next rollout tries again
            raise


def merged(slices: Iterable[ImageSlice]) -> tuple[ImageSlice, ...]:
    """The same images in the same order, with neighbours of a block joined."""
    joined: list[ImageSlice] = []
    for piece in slices:
        if joined and joined[-1].key == piece.key and joined[-1].stop == piece.first:
            joined[-1] = ImageSlice(piece.key, joined[-1].first, piece.stop)
        else:
            joined.append(piece)
    return tuple(joined)


def release(batch: KVBatchMeta) -> dict[str, float]:
    """Free the blocks of groups that have been trained on, and all that is left of groups that verl has cleared.

    A group is alive while its own key is in the queue, a prompt's: verl removes it when it samples the group for a
    batch, and when it clears it. A rollout may still put a row, and images, after that. Nobody would look for them.

    Safe while other groups' rollouts run: a group's own key is in the queue before any of its blocks, and both are
    listed at once.

    Args:
        batch: what has been trained on. Its rows are still there: verl clears them itself.

    Returns:
        Metrics of the trained groups: `payload/bytes`, of their images, and `payload/shared_bytes`, of those that
        several rollouts may refer to.
    """
    listed = tq.kv_list() or {}
    blocks = listed.get(PARTITION_ID, {})
    rows = listed.get(batch.partition_id, {})
    trained = {_uid(key) for key in batch.keys}
    alive = {key for key, tag in rows.items() if tag.get("is_prompt")} - trained
    late = {key for key in rows if _uid(key) not in alive} - set(batch.keys)
    unused = {key for key in blocks if _uid(key) not in alive}
    for keys, partition_id in ((late, batch.partition_id), (unused, PARTITION_ID)):
        if keys:
            tq.kv_clear(keys=sorted(keys), partition_id=partition_id)
    tags = [tag for key, tag in blocks.items() if _uid(key) in trained]
    return {
        "payload/bytes": float(sum(tag["num_bytes"] for tag in tags)),
        "payload/shared_bytes": float(sum(tag["num_bytes"] for tag in tags if tag["shared"])),
    }


def _uid(key: str) -> str:
    return key.split("_", 1)[0]
