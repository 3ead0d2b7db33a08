"""A model's `pixel_values` that are made where the model runs.

A stand-in for the tensor lies in a row's `multi_modal_inputs`. verl's engines join those of a micro-batch by
`torch.cat` before the forward pass (`verl.utils.model.extract_multi_modal_inputs`), whichever engine it is; there the
model's own image processor turns the images into the tensor. torch asks an argument that is no tensor through
`__torch_function__`, its protocol for such stand-ins.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from verl.utils.device import get_device_id, get_device_name, get_torch_device

from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import ImagePart
from verl_video_tools.verl_plugin.stored_images import ImageSlice, get_block, pack, unpack

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

    def __init__(self, slices: tuple[ImageSlice, ...], *args: Any) -> None:
        super().__init__(*args)
        self.slices = slices

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(piece.stop - piece.first for piece in self.slices),)

    def images(self) -> list[torch.Tensor]:
        """Raises InvariantError if the queue does not hold them."""
        return [image for piece in self.slices for image in _cache.block(piece.key)[piece.first : piece.stop]]


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


class _BlockCache:
    """Blocks of images that were fetched last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[str, list[torch.Tensor]] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def block(self, key: str) -> list[torch.Tensor]:
        with self._lock:
            if (images := self._blocks.get(key)) is not None:
                self._blocks.move_to_end(key)
                return images
        images = get_block(key)
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = images
                self._num_bytes += _num_bytes(images)
            while self._num_bytes > self._max_bytes and len(self._blocks) > 1:
                _, oldest = self._blocks.popitem(last=False)
                self._num_bytes -= _num_bytes(oldest)
        return images


def _num_bytes(images: Sequence[torch.Tensor]) -> int:
    return sum(image.numel() for image in images)


_cache = _BlockCache(CACHE_BYTES)
