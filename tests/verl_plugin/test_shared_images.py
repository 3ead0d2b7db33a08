"""What rollouts of a group share by its frames: those that begin with other parts of the same frames share nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from verl_video_tools.core.types import FrameRecord, ImagePart, PixelBox, Tile
from verl_video_tools.verl_plugin import sent_images, stored_images
from verl_video_tools.verl_plugin.sent_images import ImageObject, ImageSender, image_name
from verl_video_tools.verl_plugin.stored_images import BlockWriter, block_name

VIEWS: dict[str, dict[str, Any]] = {
    "whole": {},
    "left": {"region": PixelBox(0, 0, 48, 64)},
    "right": {"region": PixelBox(48, 0, 96, 64)},
    "grid": {"tiles": (Tile(7, 0.5), Tile(9, 0.75))},
    "other grid": {"tiles": (Tile(7, 0.5), Tile(11, 1.0))},
}
"""All of frame 7, at one size."""


def images(view: str) -> list[ImagePart]:
    """Of one look, with pixels of its own."""
    shade = list(VIEWS).index(view)
    return [ImagePart(FrameRecord(7, 0.5, 4, 2, **VIEWS[view]), np.full((2, 4, 3), shade, np.uint8))]


async def test_images_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    put: dict[str, int] = {}

    def put_block(key: str, shown: Sequence[ImagePart], *, shared: bool) -> None:
        assert key not in put and shared
        put[key] = int(shown[0].pixels_HWC[0, 0, 0])  # type: ignore[index]

    monkeypatch.setattr(stored_images, "put_block", put_block)
    writer = BlockWriter()
    for session in range(2):
        for number, view in enumerate(VIEWS):
            (piece,) = await writer.write("group", session, 1, images(view))
            assert put[piece.key] == number
    assert len(put) == len({block_name(images(view)) for view in VIEWS}) == len(VIEWS)


async def test_images_on_their_way_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[ImageObject] = []

    def store(shown: Sequence[ImagePart]) -> ImageObject:
        arrays = [image.pixels_HWC for image in shown]
        stored.append(ImageObject(arrays, [image_name(array) for array in arrays if array is not None]))
        return stored[-1]

    monkeypatch.setattr(sent_images, "store", store)
    for _ in range(2):
        for view in VIEWS:
            (sent,) = await ImageSender("group").send(images(view))
            assert sent.names == (image_name(images(view)[0].pixels_HWC),)  # type: ignore[arg-type]
    assert len(stored) == len(VIEWS)
