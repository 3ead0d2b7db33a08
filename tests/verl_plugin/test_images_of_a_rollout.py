"""What reaches the inference server and the queue of a rollout's images: those that it was shown, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.verl_plugin import sent_images, stored_images
from verl_video_tools.verl_plugin.sent_images import ImageSender, SentImages, image_name
from verl_video_tools.verl_plugin.stored_images import BlockWriter, ImageSlice, merged


def images(*shades: int, first_frame: int = 0) -> list[ImagePart]:
    """Consecutive frames of one size, each of one shade."""
    return [
        ImagePart(FrameRecord(first_frame + number, number / 5, 4, 2), np.full((2, 4, 3), shade, np.uint8))
        for number, shade in enumerate(shades)
    ]


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """References are the objects themselves."""
    monkeypatch.setattr(sent_images, "ray", SimpleNamespace(put=lambda arrays: arrays))


def received(sent: Sequence[SentImages]) -> list[int]:
    """Shades of the images that a server finds behind references."""
    arrays = [array for piece in sent for array in piece.reference[piece.first : piece.first + len(piece.names)]]
    assert [image_name(array) for array in arrays] == [name for piece in sent for name in piece.names]
    return [int(array[0, 0, 0]) for array in arrays]


@pytest.mark.usefixtures("object_store")
async def test_each_turn_sends_what_it_shows() -> None:
    sender = ImageSender("sends")
    first, second, third = images(1, 2, 3), images(4, 5, first_frame=50), images(6, first_frame=70)
    assert received(await sender.send(first)) == [1, 2, 3]
    assert received(await sender.send([*first, *second])) == [1, 2, 3, 4, 5]
    assert received(await sender.send([*first, *third])) == [1, 2, 3, 6], "a context policy has dropped the second"
    assert received(await sender.send([*first, *second, *third])) == [1, 2, 3, 4, 5, 6]
    assert received(await sender.send([*first[1:], *third])) == [2, 3, 6]


@pytest.mark.usefixtures("object_store")
async def test_questions_that_begin_with_the_same_frame_numbers_share_nothing() -> None:
    """Two videos of one length have the same records, and other pixels."""
    senders = ImageSender("one question"), ImageSender("another")
    sent = [await sender.send(images(*shades)) for sender, shades in zip(senders, ((1, 2), (3, 4)), strict=True)]
    assert [received(each) for each in sent] == [[1, 2], [3, 4]]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Shades of the images of each block; each is put once."""
    blocks: dict[str, list[int]] = {}

    def put_block(key: str, shown: Sequence[ImagePart], *, shared: bool) -> None:
        assert key not in blocks and shared == ("initial" in key)
        blocks[key] = [int(image.pixels_HWC[0, 0, 0]) for image in shown if image.pixels_HWC is not None]

    monkeypatch.setattr(stored_images, "put_block", put_block)
    return blocks


def stored(slices: Sequence[ImageSlice], queue: dict[str, list[int]]) -> list[int]:
    """Shades of the images that a training process finds in slices."""
    return [queue[piece.key][number] for piece in merged(slices) for number in range(piece.first, piece.stop)]


async def test_each_rollout_finds_its_own_images_in_the_queue(queue: dict[str, list[int]]) -> None:
    writer = BlockWriter()
    for session, called in enumerate([(4, 5), (), (6,)]):
        slices = await writer.write("group", session, 3, [*images(1, 2, 3), *images(*called, first_frame=50)])
        assert stored(slices, queue) == [1, 2, 3, *called]
        some = [piece for number, piece in enumerate(slices) if number != 1]
        assert stored(some, queue) == [1, 3, *called], "a sequence that lacks an image does not get it back"
    assert len(queue) == 3, "the first frames once, and the images of two rollouts' calls"
    assert stored(await writer.write("another", 0, 2, images(7, 8)), queue) == [7, 8]


async def test_after_a_failed_write_the_next_rollout_writes_the_first_frames(
    queue: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_block = stored_images.put_block

    def failing(*_: object, **__: object) -> None:
        raise OSError("no space left")

    writer = BlockWriter()
    monkeypatch.setattr(stored_images, "put_block", failing)
    with pytest.raises(OSError, match="no space left"):
        await writer.write("group", 0, 2, images(1, 2))
    monkeypatch.setattr(stored_images, "put_block", put_block)
    assert stored(await writer.write("group", 1, 2, images(1, 2)), queue) == [1, 2]
