"""Images of rollouts outside of their agent loop: sent to the engine, stored for training, shown to the model.

**Sent.** verl sends all images of a rollout with every turn, pickled one by one on the event loop: 106 MB a turn for
752 frames of 280x168. Here each message's images become one object of Ray, and the initial frames of a group become one
for all its rollouts. A turn then sends references and names, and the server fetches what it has not processed yet
(`vllm_front_end`). The name of an image is a hash of its pixels and size, so different pixels never share one.

**Stored.** verl keeps the processor's tensors in the row of each sequence. A group of 16 rollouts then holds its
initial frames 16 times, each in floating point and doubled in time: 16 x 289 MB for 512 frames of 280x168, of which
72 MB are pixels. Here a row refers to blocks of 8-bit images. A block lies in a partition of its own, under
`<uid>_<name>`: verl's replay buffer takes every key of its partitions for a prompt or a sequence. It belongs to the
storage units, so it outlives the worker that has put it there. `release` frees the blocks of all groups that no longer
wait for training.

**Shown to the model.** A lazy value stands for `pixel_values` in a row's `multi_modal_inputs`. verl's engines join
those of a micro-batch by `torch.cat` before the forward pass (`verl.utils.model.extract_multi_modal_inputs`), whichever
engine it is; there the model's own image processor turns the images into the tensor. torch asks an argument that is no
tensor through `__torch_function__`, its protocol for such values.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import ray
import torch
from verl.utils.device import get_device_id, get_device_name, get_torch_device

from verl_video_tools.core.bounded_cache import BoundedCache
from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.image_files import image_name as image_name
from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.rollout.tokens import pixels_of
from verl_video_tools.verl_plugin import queue
from verl_video_tools.verl_plugin.queue import KVBatchMeta

Block = TypeVar("Block")
"""What several images lie in: an `ImageObject`, or the key of a block in the queue."""


@dataclass(frozen=True, slots=True)
class ImageSlice(Generic[Block]):
    """Consecutive images of a block: those from `first` up to, but without, `stop`."""

    block: Block
    first: int
    stop: int


def slices_of(block: Block, num_images: int) -> list[ImageSlice[Block]]:
    """One for each image of a block."""
    return [ImageSlice(block, number, number + 1) for number in range(num_images)]


def merged(slices: Iterable[ImageSlice[Block]]) -> tuple[ImageSlice[Block], ...]:
    """The same images in the same order, with neighbours of a block joined."""
    joined: list[ImageSlice[Block]] = []
    for piece in slices:
        if joined and joined[-1].block == piece.block and joined[-1].stop == piece.first:
            joined[-1] = ImageSlice(piece.block, joined[-1].first, piece.stop)
        else:
            joined.append(piece)
    return tuple(joined)


# --------------------------------------------------------------------------------------------------- sent to the engine


def front_end_is_active() -> bool:
    return os.environ.get("VVT_VLLM_FRONT_END", "") != "stock"


def takes_image_references(rollout: Mapping[str, Any]) -> bool:
    """Whether the inference servers of a run take `SentImages`.

    Args:
        rollout: `actor_rollout_ref.rollout`. With separate servers for prefill and decoding verl starts its own.
    """
    is_disaggregated = bool((rollout.get("disaggregation") or {}).get("enabled", False))
    return rollout.get("name") == "vllm" and not is_disaggregated and front_end_is_active()


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
        images += [None if is_present else stored[piece.first + number] for number, is_present in enumerate(cached)]
    return images


def store(images: Sequence[ImagePart]) -> ImageObject:
    """Copy images into the object store; for a thread, since hashing and copying take their time."""
    arrays = [pixels_of(image) for image in images]
    return ImageObject(ray.put(arrays), [image_name(array) for array in arrays])


_InitialFrames = tuple[str, tuple[FrameRecord, ...]]
"""A group, and which frames its rollouts start with."""
_initial: WeakValueDictionary[_InitialFrames, ImageObject] = WeakValueDictionary()
_in_progress: dict[_InitialFrames, asyncio.Task[ImageObject]] = {}


class ImageSender:
    """The images of one rollout. Keeps its objects alive for as long as it lives.

    Args:
        group: what the rollouts of a group have in common; those that start with the same frames share them.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._places: dict[int, ImageSlice[ImageObject]] = {}
        self._sent: list[ImagePart] = []  # an identity is an image's only while it lives

    async def send(self, images: Sequence[ImagePart]) -> list[SentImages]:
        """References to images, in their order. Those that no turn has shown before are stored first."""
        if new := [image for image in images if id(image) not in self._places]:
            stored = await (asyncio.to_thread(store, new) if self._places else self._shared(new))
            self._places |= zip(map(id, new), slices_of(stored, len(new)), strict=True)
            self._sent += new
        return [
            SentImages(piece.block.reference, piece.first, piece.block.names[piece.first : piece.stop])
            for piece in merged(self._places[id(image)] for image in images)
        ]

    async def _shared(self, images: Sequence[ImagePart]) -> ImageObject:
        key = self._group, tuple(image.record for image in images)
        if (initial := _initial.get(key)) is not None:
            return initial
        task = _in_progress.get(key)
        if task is None:
            task = _in_progress[key] = asyncio.create_task(asyncio.to_thread(store, images))
            task.add_done_callback(lambda _: _in_progress.pop(key, None))
        stored = await asyncio.shield(task)  # a rollout that is cancelled must not take the others' frames along
        _initial[key] = stored
        return stored


# -------------------------------------------------------------------------------------------------- stored for training

PARTITION_ID = "video_tools_images"


def block_name(images: Sequence[ImagePart]) -> str:
    """A name that two rollouts of a group have in common if they were shown the same frames at the same sizes."""
    return "initial-" + hashlib.sha1(repr([image.record for image in images]).encode()).hexdigest()


def pack(images: Sequence[ImagePart]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels of images as one tensor, uint8 (bytes,), and their sizes, int32 (images, 2): height and width."""
    sizes_N2 = np.array([(image.record.height, image.record.width) for image in images], dtype=np.int32)
    pixels = np.empty(int(sizes_N2.prod(axis=1, dtype=np.int64).sum()) * 3, dtype=np.uint8)
    first = 0
    for image in images:
        flat = pixels_of(image).reshape(-1)
        pixels[first : first + flat.size] = flat
        first += flat.size
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
    """Store the pixels of images. Blocks the thread, not the queue's own event loop."""
    pixels, sizes_N2 = pack(images)
    tag = {"num_bytes": pixels.nbytes, "shared": shared}
    queue.write_tagged(key, PARTITION_ID, {"pixels": pixels, "sizes": sizes_N2}, tag)


def get_block(key: str) -> list[torch.Tensor]:
    """The images of a block.

    Raises:
        InvariantError: the queue does not hold it.
    """
    try:
        (row,) = queue.read([key], PARTITION_ID, "pixels", "sizes")
    except (RuntimeError, ValueError) as error:
        raise InvariantError(f"the images {key!r} of a rollout are not in the queue any more: {error}") from error
    return unpack(row["pixels"], row["sizes"])


MAX_REMEMBERED = 4096
"""Blocks that a writer knows to be on their way."""


class BlockWriter:
    """Puts the images of a worker's rollouts into the queue, the initial frames of a group once.

    All rollouts of a group run in one worker, so it is enough to remember here what is on its way.
    """

    def __init__(self) -> None:
        self._shared: dict[str, asyncio.Task[None]] = {}

    async def write(
        self, uid: str, session_id: int, num_initial: int, images: Sequence[ImagePart]
    ) -> list[ImageSlice[str]]:
        """Store the images of one rollout, and return where each lies.

        Args:
            num_initial: how many of them, from the first on, are the rollout's initial frames.
        """
        slices: list[ImageSlice[str]] = []
        if initial := images[:num_initial]:
            key = f"{uid}_{block_name(initial)}"
            await self._put_once(key, initial)
            slices += slices_of(key, len(initial))
        if called := images[num_initial:]:
            key = f"{uid}_{session_id}-called"
            await asyncio.to_thread(put_block, key, called, shared=False)
            slices += slices_of(key, len(called))
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
    listed = queue.tags_by_key()
    blocks = listed.get(PARTITION_ID, {})
    rows = listed.get(batch.partition_id, {})
    trained = {_uid(key) for key in batch.keys}
    alive = {key for key, tag in rows.items() if tag.get("is_prompt")} - trained
    late = {key for key in rows if _uid(key) not in alive} - set(batch.keys)
    unused = {key for key in blocks if _uid(key) not in alive}
    for keys, partition_id in ((late, batch.partition_id), (unused, PARTITION_ID)):
        if keys:
            queue.remove(sorted(keys), partition_id)
    tags = [tag for key, tag in blocks.items() if _uid(key) in trained]
    return {
        "payload/bytes": float(sum(tag["num_bytes"] for tag in tags)),
        "payload/shared_bytes": float(sum(tag["num_bytes"] for tag in tags if tag["shared"])),
    }


def _uid(key: str) -> str:
    return key.split("_", 1)[0]


# --------------------------------------------------------------------------------------------------- shown to the model

CACHE_BYTES = 1 << 30
"""Of 8-bit images that a training process keeps: rollouts of a group often follow each other on a rank."""


class LazyPixelValues(ABC):
    """The pixel values of one sequence, as its images in 8 bits.

    No dataclass: TransferQueue sends those as dictionaries of their fields, other objects pickled.

    Args:
        image_processor: the model's own, without its tokenizer.
        mm_processor_kwargs: what the run hands to it (`data.mm_processor_kwargs`).
        dtype: in which the model reads them; the processor makes float32.
    """

    def __init__(self, image_processor: Any, mm_processor_kwargs: Mapping[str, Any], dtype: torch.dtype) -> None:
        self.image_processor = image_processor
        self.mm_processor_kwargs = mm_processor_kwargs
        self.dtype = dtype

    @abstractmethod
    def images(self) -> list[torch.Tensor]:
        """The sequence's images in order, each uint8 (3, height, width)."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """How many images there are: verl names the shapes of what could not be joined."""

    def resolve(self) -> torch.Tensor:
        """The tensor, of shape (patches, values per patch), on the device of this process."""
        images = self.images()
        if get_device_name() != "cpu" and get_torch_device().is_available():
            device = f"{get_device_name()}:{get_device_id()}"
            images = [image.to(device) for image in images]
        made = self.image_processor(images=images, return_tensors="pt", **self.mm_processor_kwargs)
        pixel_values: torch.Tensor = made["pixel_values"].to(self.dtype)
        return pixel_values

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not torch.cat:
            raise InvariantError(f"lazy pixel values were handed to {func.__name__}; only torch.cat resolves them")
        tensors, *rest = args
        resolved = [value.resolve() if isinstance(value, LazyPixelValues) else value for value in tensors]
        return func(resolved, *rest, **(kwargs or {}))


class StoredPixelValues(LazyPixelValues):
    """Of images that lie in the queue.

    Args:
        slices: the sequence's images, in order.
    """

    def __init__(self, slices: tuple[ImageSlice[str], ...], *args: Any) -> None:
        super().__init__(*args)
        self.slices = slices

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(piece.stop - piece.first for piece in self.slices),)

    def images(self) -> list[torch.Tensor]:
        """Raises InvariantError if the queue does not hold them."""
        return [image for piece in self.slices for image in cached_block(piece.block)[piece.first : piece.stop]]


class HeldPixelValues(LazyPixelValues):
    """Of images that are sent along: one tensor, which processes of a data loader share as one file.

    Args:
        images: with pixels.
    """

    def __init__(self, images: Sequence[ImagePart], *args: Any) -> None:
        super().__init__(*args)
        self.pixels, self.sizes_N2 = pack(images)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes_N2),)

    def images(self) -> list[torch.Tensor]:
        return unpack(self.pixels, self.sizes_N2)


def _num_bytes(images: Sequence[torch.Tensor]) -> int:
    return sum(image.numel() for image in images)


_cache: BoundedCache[str, list[torch.Tensor]] = BoundedCache(CACHE_BYTES, _num_bytes)


def cached_block(key: str) -> list[torch.Tensor]:
    """As `get_block`."""
    if (images := _cache.get(key)) is None:
        images = get_block(key)
        _cache.put(key, images)
    return images


def image_grids_N3(image_processor: Any, records: Sequence[FrameRecord]) -> torch.Tensor:
    """The processor's `image_grid_thw`, from the sizes of images that it leaves as they are.

    Returns:
        int64, shape (N, 3): patches of each image in time, height and width.
    """
    patch = image_processor.patch_size
    grids = [(1, record.height // patch, record.width // patch) for record in records]
    return torch.tensor(grids, dtype=torch.long).reshape(-1, 3)


def position_ids_4L(
    processor: Any, image_token_id: int, ids: Sequence[int], inputs: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Positions of an unpadded sequence: one row in reading order, three of the model's multimodal rotary embedding.

    Equal to what verl's agent loop worker computes (`_compute_position_ids`); tests compare the two.

    Args:
        processor: as `verl.utils.hf_processor` loads it, with the model's `get_rope_index` bound to it.
        ids: token ids, placeholders expanded.
        inputs: the multimodal ones; `image_grid_thw` is read.

    Returns:
        int64, shape (4, len(ids)).
    """
    input_ids_1L = torch.tensor([list(ids)], dtype=torch.long)
    is_image_1L = input_ids_1L == image_token_id
    rope_ids_31L, _ = processor.get_rope_index(
        input_ids=input_ids_1L,
        attention_mask=torch.ones_like(input_ids_1L),
        image_grid_thw=inputs.get("image_grid_thw"),
        video_grid_thw=None,
        mm_token_type_ids=is_image_1L.long(),
    )
    return torch.cat([torch.arange(input_ids_1L.shape[1])[None], rope_ids_31L[:, 0]], dim=0)
