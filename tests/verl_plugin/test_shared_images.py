"""Images of a group's rollouts: under which names they are stored and sent, and which of them a server fetches.

Rollouts that begin with the same frames share them; those that begin with other parts or sizes of them share nothing.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest

from verl_video_tools.core.types import FrameRecord, ImagePart, PixelBox
from verl_video_tools.verl_plugin import images as rollout_images
from verl_video_tools.verl_plugin.images import (
    BlockWriter,
    ImageObject,
    ImageSender,
    SentImages,
    block_name,
    fetch_missing,
    image_name,
)

VIEWS: dict[str, dict[str, Any]] = {
    "whole": {},
    "left": {"region": PixelBox(0, 0, 48, 64)},
    "right": {"region": PixelBox(48, 0, 96, 64)},
    "larger": {"width": 8, "height": 4},
    "turned": {"width": 2, "height": 4},
    "of another video": {"video": 1},
}
"""All of frame 7, and at one size unless it says otherwise."""


def images(view: str) -> list[ImagePart]:
    """Of one look, with pixels of its own."""
    record = FrameRecord(**{"index": 7, "timestamp_seconds": 0.5, "width": 4, "height": 2, **VIEWS[view]})
    shade = list(VIEWS).index(view)
    return [ImagePart(record, np.full((record.height, record.width, 3), shade, np.uint8))]


def test_different_images_have_different_names() -> None:
    """Also those of the same bytes: a black frame of 56x112 pixels is not one of 112x56."""
    shapes = [(56, 112), (112, 56), (28, 224)]
    arrays = [np.full((*shape, 3), shade, np.uint8) for shape in shapes for shade in (0, 1)]
    assert len({image_name(array) for array in arrays}) == len(arrays)
    turned = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3).transpose(1, 0, 2)  # not contiguous
    assert image_name(turned) == image_name(turned.copy()) != image_name(turned.reshape(2, 4, 3))


async def test_images_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    put: dict[str, int] = {}

    def put_block(key: str, shown: Sequence[ImagePart], *, shared: bool) -> None:
        assert key not in put and shared
        put[key] = int(shown[0].pixels_HWC[0, 0, 0])  # type: ignore[index]

    monkeypatch.setattr(rollout_images, "put_block", put_block)
    writer = BlockWriter()
    for session in range(2):
        for number, view in enumerate(VIEWS):
            (piece,) = await writer.write("group", session, 1, images(view))
            assert put[piece.block] == number
    assert len(put) == len({block_name(images(view)) for view in VIEWS}) == len(VIEWS)


class Reference:
    """Stands for Ray's reference to an object of four images, each a text; counts how often it is fetched."""

    def __init__(self, name: str) -> None:
        self.images, self.num_fetched = [f"{name}{number}" for number in range(4)], 0

    def __await__(self) -> Generator[None, None, list[str]]:
        self.num_fetched += 1
        yield
        return self.images


@pytest.mark.parametrize(
    ("cached", "fetched", "num_fetched"),
    [
        ("------", ["a0", "a1", "b2", "b3", "c0", "c1"], [1, 1, 1]),
        ("++++++", [None] * 6, [0, 0, 0]),
        ("+-++++", [None, "a1", None, None, None, None], [1, 0, 0]),
        ("+++-++", [None, None, None, "b3", None, None], [0, 1, 0]),
        ("++++-+", [None, None, None, None, "c0", None], [0, 0, 1]),
        ("--++--", ["a0", "a1", None, None, "c0", "c1"], [1, 0, 1]),
    ],
)
async def test_the_server_fetches_what_its_cache_lacks(cached: str, fetched: list[Any], num_fetched: list[int]) -> None:
    """The second piece begins with the third image of its object, as after a policy that drops the first two."""
    sent = [SentImages(Reference(name), first, ("name", "name")) for name, first in (("a", 0), ("b", 2), ("c", 0))]
    assert await fetch_missing(sent, [mark == "+" for mark in cached]) == fetched
    assert [piece.reference.num_fetched for piece in sent] == num_fetched


async def test_each_image_is_stored_once_and_sent_in_the_order_of_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a context policy keeps of earlier turns, each piece names neighbours of one object."""
    stored: list[list[int]] = []

    def store(shown: Sequence[ImagePart]) -> ImageObject:
        stored.append([image.record.index for image in shown])
        return ImageObject(stored[-1], [str(index) for index in stored[-1]])

    monkeypatch.setattr(rollout_images, "store", store)
    frames = [ImagePart(FrameRecord(index, 0.0, 4, 2), np.zeros((2, 4, 3), np.uint8)) for index in range(8)]
    sender = ImageSender("group")

    async def pieces(*indices: int) -> list[tuple[int, int, str]]:
        sent = await sender.send([frames[index] for index in indices])
        assert [name for piece in sent for name in piece.names] == [str(index) for index in indices]
        for piece in sent:  # the places are those of the images that the names say
            last = piece.first + len(piece.names)
            assert [str(index) for index in piece.reference[piece.first : last]] == list(piece.names)
        return [(stored.index(piece.reference), piece.first, " ".join(piece.names)) for piece in sent]

    assert await pieces(0, 1, 2, 3) == [(0, 0, "0 1 2 3")]
    assert await pieces(0, 1, 2, 3, 4, 5) == [(0, 0, "0 1 2 3"), (1, 0, "4 5")]
    assert await pieces(2, 3, 5, 6, 7) == [(0, 2, "2 3"), (1, 1, "5"), (2, 0, "6 7")]  # earlier ones are dropped
    assert await pieces(0, 2, 3, 1) == [(0, 0, "0"), (0, 2, "2 3"), (0, 1, "1")]  # a gap, and out of order
    assert stored == [[0, 1, 2, 3], [4, 5], [6, 7]]


async def test_what_was_sent_is_kept_as_long_as_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image is known by its identity, which another one may have once it is gone."""
    monkeypatch.setattr(rollout_images, "store", lambda shown: ImageObject(None, ["name"] * len(shown)))
    sender = ImageSender("group")
    pixels = np.zeros((2, 4, 3), np.uint8)
    sent = weakref.ref(pixels)
    for number in range(2):
        await sender.send([ImagePart(FrameRecord(number, 0.0, 4, 2), pixels if number == 0 else pixels.copy())])
    del pixels
    gc.collect()
    assert sent() is not None
    assert len(await sender.send([])) == 0  # the rollout still runs


async def test_images_on_their_way_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[ImageObject] = []

    def store(shown: Sequence[ImagePart]) -> ImageObject:
        arrays = [image.pixels_HWC for image in shown]
        stored.append(ImageObject(arrays, [image_name(array) for array in arrays if array is not None]))
        return stored[-1]

    monkeypatch.setattr(rollout_images, "store", store)
    for _ in range(2):
        for view in VIEWS:
            (sent,) = await ImageSender("group").send(images(view))
            assert sent.names == (image_name(images(view)[0].pixels_HWC),)  # type: ignore[arg-type]
    assert len(stored) == len(VIEWS)


async def test_questions_whose_frames_have_the_same_numbers_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of two videos of one length have the same records, and other pixels."""

    def store(shown: Sequence[ImagePart]) -> ImageObject:
        return ImageObject([image.pixels_HWC for image in shown], ["name"])

    monkeypatch.setattr(rollout_images, "store", store)
    record = images("whole")[0].record
    senders = ImageSender("one question"), ImageSender("another")  # each keeps what it has stored
    for shade, sender in enumerate(senders):
        (sent,) = await sender.send([ImagePart(record, np.full((2, 4, 3), shade, np.uint8))])
        assert sent.reference[0].max() == shade
