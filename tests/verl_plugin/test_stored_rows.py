"""Rows whose images lie in the queue once, on a queue in memory: verl's own tensors, and no block left behind.

With Ray and TransferQueue's own storage: tests/integration/test_stored_images.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.model import extract_multi_modal_inputs

from examples.tiny_models.tiny_model import ARCHITECTURES, Architecture
from tests.context_method import NAME
from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import LARGE_PIXELS, Rollout, processor, run_loop
from verl_video_tools.core.bounded_cache import BoundedCache
from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.verl_plugin import images as rollout_images
from verl_video_tools.verl_plugin import queue as queue_port
from verl_video_tools.verl_plugin.agent_loop_worker import IMAGE_PARTS, RowInputs, begin_rollout, row_inputs
from verl_video_tools.verl_plugin.images import (
    PARTITION_ID,
    BlockWriter,
    HeldPixelValues,
    ImageSlice,
    StoredPixelValues,
    block_name,
    get_block,
    merged,
    put_block,
    release,
)


class Queue:
    """TransferQueue's key-value calls on dictionaries: fields and tag of each key, by partition."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, tuple[Any, Mapping[str, Any]]]] = {}

    def kv_batch_put(
        self, keys: Sequence[str], partition_id: str, fields: TensorDict | None = None, tags: Sequence[Any] = ()
    ) -> None:
        for number, key in enumerate(keys):
            value = None if fields is None else fields[number : number + 1]
            self.partitions.setdefault(partition_id, {})[key] = (value, tags[number])

    def kv_put(self, key: str, partition_id: str, fields: Mapping[str, torch.Tensor], tag: Mapping[str, Any]) -> None:
        columns = TensorDict({name: value[None] for name, value in fields.items()}, batch_size=1)
        self.kv_batch_put([key], partition_id, columns, [tag])

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> TensorDict:
        (key,) = keys
        if key not in self.partitions.get(partition_id, {}):
            raise RuntimeError(f"no key {key}")
        return self.partitions[partition_id][key][0].select(*select_fields)

    def kv_list(self) -> dict[str, dict[str, Any]]:
        return {name: {key: tag for key, (_, tag) in held.items()} for name, held in self.partitions.items()}

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            del self.partitions[partition_id][key]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.setattr(queue_port, "tq", made)
    monkeypatch.setattr(rollout_images, "_cache", BoundedCache(1 << 20, rollout_images._num_bytes))
    return made


def images(*shades: int, width: int = 84, height: int = 56) -> list[ImagePart]:
    return [
        ImagePart(FrameRecord(shade, 0.0, width, height), np.full((height, width, 3), shade, np.uint8))
        for shade in shades
    ]


# ------------------------------------------------------------------------------------------------- what rows amount to


async def roll_out(context: str, family: Architecture) -> tuple[Rollout, list[RowInputs]]:
    """A rollout as verl's worker gets it, with its images; and the rows that ours makes of the same one."""
    turns = [choose(20, 60), choose(100, 140), answer("B")]
    options: dict[str, Any] = {"method": NAME, "method_fields": {"context": context}, "family": family}
    options |= {"mm_processor_kwargs": LARGE_PIXELS}

    async def ours() -> list[RowInputs]:
        begin_rollout(takes_image_parts=True)
        outputs = (await run_loop(turns, **options)).outputs
        arguments = processor(family), LARGE_PIXELS, torch.bfloat16
        return await row_inputs(outputs, BlockWriter(), *arguments, uid="u", session_id=3)

    rows = await asyncio.create_task(ours())  # what a worker knows of a rollout is known to its task
    return await run_loop(turns, **options), rows


@pytest.mark.usefixtures("context_method")
@pytest.mark.parametrize("family", ARCHITECTURES)
@pytest.mark.parametrize("context", ["append", "initial_plus_last"])
async def test_rows_equal_verls(context: str, family: Architecture, queue: Queue) -> None:
    """Bit for bit, in the precision in which the actor reads them: each sequence shows the images of its turns."""
    rollout, rows = await roll_out(context, family)
    assert len(rows) == len(rollout.outputs) == (1 if context == "append" else 2)
    blocks = queue.kv_list()[PARTITION_ID]
    assert len(blocks) == 2 and blocks["u_3-called"]["shared"] is False
    for row, sequence in zip(rows, rollout.sequences, strict=True):
        expected, positions_4L = sequence.training_tensors()
        found = extract_multi_modal_inputs([row.multi_modal_inputs])
        assert set(found) == set(expected)
        assert found["pixel_values"].dtype == torch.bfloat16
        for name, value in expected.items():
            assert torch.equal(found[name], value.to(found[name].dtype)), name
        assert torch.equal(row.position_ids_4L, positions_4L)
        assert row.multi_modal_inputs["pixel_values"].shape == (len(sequence.images),)
    if context == "initial_plus_last":  # the first zoom, which the last turn does not see, lies between the two
        pieces = rows[-1].multi_modal_inputs["pixel_values"].slices
        assert [(piece.first, piece.stop) for piece in pieces] == [(0, 8), (8, 16)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_pixel_values_are_made_as_the_run_makes_them(dtype: torch.dtype, queue: Queue) -> None:
    """With its bounds, in its precision. Without the bounds the processor would shrink these images."""
    shown = images(10, 200, width=308, height=224)
    tensors = [torch.from_numpy(image.pixels_HWC).permute(2, 0, 1) for image in shown]
    image_processor = processor().image_processor
    expected = image_processor(images=tensors, return_tensors="pt", **LARGE_PIXELS)["pixel_values"]
    assert len(expected) == 2 * 308 * 224 // 14**2
    put_block("u_called", shown, shared=False)
    options = (image_processor, LARGE_PIXELS, dtype)
    for values in (HeldPixelValues(shown, *options), StoredPixelValues((ImageSlice("u_called", 0, 2),), *options)):
        made = torch.cat([values])  # type: ignore[list-item]
        assert made.dtype == dtype and torch.equal(made, expected.to(dtype))
        with pytest.raises(InvariantError, match=r"handed to stack; only torch\.cat"):
            torch.stack([values])  # type: ignore[list-item]
    second = StoredPixelValues((ImageSlice("u_called", 1, 2),), *options)
    assert torch.equal(second.resolve(), expected[len(expected) // 2 :].to(dtype))


# ------------------------------------------------------------------------------------------------------------- slices


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ("a0 a1 a2", "a0-2"),
        ("a0 a1 a3", "a0-1 a3"),  # a gap: an image between them is not shown
        ("a0 a1 b2", "a0-1 b2"),
        ("a1 a0", "a1 a0"),
        ("a0 a0", "a0 a0"),
        ("a0 b0 b1 a1", "a0 b0-1 a1"),
        ("", ""),
    ],
)
def test_neighbours_of_a_block_are_joined(places: str, expected: str) -> None:
    slices = [ImageSlice(place[0], int(place[1]), int(place[1]) + 1) for place in places.split()]
    joined = merged(slices)

    def text(piece: ImageSlice[str]) -> str:
        return f"{piece.block}{piece.first}" + (f"-{piece.stop - 1}" if piece.stop > piece.first + 1 else "")

    assert " ".join(map(text, joined)) == expected


def test_images_of_any_sizes_come_back_from_their_block(queue: Queue) -> None:
    shown = [*images(1, width=84, height=56), *images(2, width=56, height=84), *images(3, width=28, height=28)]
    put_block("u_called", shown, shared=False)
    assert queue.kv_list()[PARTITION_ID] == {"u_called": {"num_bytes": 3 * (2 * 84 * 56 + 28 * 28), "shared": False}}
    assert [(tuple(image.shape), image.unique().tolist()) for image in get_block("u_called")] == [
        ((3, 56, 84), [1]),
        ((3, 84, 56), [2]),
        ((3, 28, 28), [3]),
    ]
    with pytest.raises(InvariantError, match="'u_other' of a rollout are not in the queue any more"):
        get_block("u_other")


def test_the_blocks_that_were_used_last_are_kept(queue: Queue) -> None:
    for name in "abc":
        put_block(name, images(1), shared=False)
    rollout_images._cache.capacity_bytes = 2 * 3 * 84 * 56

    def fetched(*names: str) -> list[str]:
        """Those that had to be."""
        asked: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rollout_images, "get_block", lambda key: asked.append(key) or get_block(key))
            for name in names:
                rollout_images.cached_block(name)
        return asked

    assert fetched("a", "b", "a", "b") == ["a", "b"]  # exactly as many bytes as it may hold
    assert fetched("a", "c", "a") == ["c"]
    assert fetched("b") == ["b"]  # the one that was not used for longest has gone
    rollout_images._cache.capacity_bytes = 1
    assert len(rollout_images.cached_block("a")) == 1


async def test_the_initial_frames_of_a_group_are_stored_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again where that failed: a rollout that comes later must not wait for what will never be there."""
    written: list[str] = []
    failures = [ConnectionError("the storage unit is gone")]

    def put(key: str, shown: Sequence[ImagePart], *, shared: bool) -> None:
        written.append(key)
        if failures:
            raise failures.pop()
        put_block(key, shown, shared=shared)

    monkeypatch.setattr(rollout_images, "put_block", put)
    writer = BlockWriter()
    with pytest.raises(ConnectionError):
        await writer.write("u", 0, 2, images(1, 2))
    both = await asyncio.gather(*(writer.write("u", session, 2, images(1, 2, 3)) for session in (0, 1)))
    key = f"u_{block_name(images(1, 2))}"
    assert sorted(written) == sorted([key, key, "u_0-called", "u_1-called"])
    assert [merged(slices) for slices in both] == [
        (ImageSlice(key, 0, 2), ImageSlice(f"u_{session}-called", 0, 1)) for session in (0, 1)
    ]


async def test_a_rollout_that_was_shown_nothing_shares_no_block(queue: Queue) -> None:
    """verl gets a blank image for it. A sibling may have been shown a blank frame of that size."""

    async def lost() -> ImagePart:
        begin_rollout(takes_image_parts=True)
        (image,) = (await run_loop([], video_path="gone.mp4")).output.multi_modal_data[IMAGE_PARTS]
        return image

    blank = await asyncio.create_task(lost())
    assert not blank.pixels_HWC.any()
    for index in (0, 1):
        seen = replace(blank, record=replace(blank.record, index=index))
        assert block_name([seen]) != block_name([blank])


# ------------------------------------------------------------------------------------------------------------- release

BYTES = 3 * 84 * 56
"""Of an image."""


async def write(queue: Queue, uid: str, session_id: int) -> None:
    """A rollout's images, two initial ones and three of calls, and its row."""
    await BlockWriter().write(uid, session_id, 2, images(1, 2, 3, 4, 5))
    queue.kv_batch_put([f"{uid}_{session_id}_0"], "train", tags=[{"status": "success"}])


async def test_blocks_are_freed_once_their_group_has_been_trained_on(queue: Queue) -> None:
    for uid, session_id in (("trained", 0), ("trained", 1), ("running", 0), ("cleared", 0)):
        await write(queue, uid, session_id)
    # verl removes a group's own key when it samples the group for a batch, and when it clears it.
    queue.kv_batch_put(["running"], "train", tags=[{"is_prompt": True}])
    queue.kv_batch_put(["trained"], "train", tags=[{"is_prompt": True}])  # of padding, which verl may leave
    keys = ["trained_0_0", "trained_1_0"]
    used = release(KVBatchMeta(keys=keys, tags=[{}, {}], partition_id="train"))
    assert used == {"payload/bytes": 8.0 * BYTES, "payload/shared_bytes": 2.0 * BYTES}
    left = queue.kv_list()
    assert {key.split("_")[0] for key in left[PARTITION_ID]} == {"running"} and len(left[PARTITION_ID]) == 2
    assert sorted(left["train"]) == ["running", "running_0_0", "trained_0_0", "trained_1_0"]  # verl clears its own rows
    queue.kv_clear(["running"], "train")
    release(KVBatchMeta(keys=["running_0_0"], tags=[{}], partition_id="train"))
    assert queue.kv_list()[PARTITION_ID] == {}
