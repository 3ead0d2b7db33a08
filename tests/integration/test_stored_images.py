"""Rows whose images lie in the queue once are trained on as if they held verl's own tensors."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.model import extract_multi_modal_inputs

from tests.integration.groups import GROUP, clear_queue, keys_of_group, one_group, run_config
from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import LARGE_PIXELS
from verl_video_tools.core.errors import InvariantError
from verl_video_tools.core.types import FrameRecord, ImagePart
from verl_video_tools.synthetic import FAMILIES, Family
from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
from verl_video_tools.verl_plugin.images import PARTITION_ID, BlockWriter, get_block, put_block, release
from verl_video_tools.verl_plugin.queue import storage_units

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("transfer_queue")]

SCRIPTS = [[choose(10, 40), choose(50, 90), answer("B")]] * GROUP
BACKEND = {"storage_backend": "SimpleStorage", "SimpleStorage": {"num_data_storage_units": 2}}


def rows_of(uid: str, partition_id: str = "train") -> dict[str, Any]:
    keys = keys_of_group(uid, partition_id)
    fields = ["input_ids", "position_ids", "multi_modal_inputs", "response_mask", "rollout_log_probs"]
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=fields)
    return {name: [data[name][row] for row in range(GROUP)] for name in fields}


def trained(*uids: str) -> KVBatchMeta:
    """A batch of the rows that the queue holds of groups."""
    keys = [key for key in tq.kv_list().get("train", {}) if key.split("_")[0] in uids and key not in uids]
    return KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")


def plain(value: Any) -> dict[str, Any]:
    return dict(getattr(value, "data", value))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_equal_verls(family: Family) -> None:
    """Bit for bit: tokens, positions, pixels in verl's default precision; initial frames lie in the queue once.

    In float32, with all methods and up to the gradients: `test_recorded_rollouts`.
    """
    config = run_config(family, *(f"+data.mm_processor_kwargs.{name}={bound}" for name, bound in LARGE_PIXELS.items()))
    asyncio.run(one_group(AgentLoopWorkerTQ, config, f"verls-{family}", SCRIPTS))
    uid = f"ours-{family}".replace("_", "-")
    asyncio.run(one_group(VideoAgentLoopWorker, config, uid, SCRIPTS))
    verls, ours = rows_of(f"verls-{family}"), rows_of(uid)
    for row in range(GROUP):
        for name in ("input_ids", "position_ids", "response_mask", "rollout_log_probs"):
            assert torch.equal(verls[name][row], ours[name][row]), name
    expected, found = (
        extract_multi_modal_inputs(list(map(plain, rows["multi_modal_inputs"]))) for rows in (verls, ours)
    )
    assert set(found) == set(expected)
    assert found["pixel_values"].dtype == torch.bfloat16
    for name, value in expected.items():
        assert torch.equal(found[name], value.to(found[name].dtype)), name

    blocks = [key for key in tq.kv_list()[PARTITION_ID] if key.startswith(uid)]
    assert len([key for key in blocks if "_initial-" in key]) == 1 and len(blocks) == 1 + GROUP
    patches = found["image_grid_thw"].prod(dim=1).reshape(GROUP, -1)
    num_initial = 8
    initial, called = int(patches[0, :num_initial].sum()), int(patches[:, num_initial:].sum())
    bytes_per_patch = 3 * (14 if family == "qwen2_5_vl" else 16) ** 2
    use = release(trained(uid))
    assert use == {
        "payload/bytes": (initial + called) * bytes_per_patch,
        "payload/shared_bytes": initial * bytes_per_patch,
    }
    assert not tq.kv_list().get(PARTITION_ID)
    clear_queue()


def test_validation_keeps_no_pixels() -> None:
    asyncio.run(
        one_group(
            VideoAgentLoopWorker,
            run_config("qwen2_5_vl", f"actor_rollout_ref.rollout.val_kwargs.n={GROUP}"),
            "val",
            SCRIPTS,
            validate=True,
        )
    )
    assert [plain(inputs) for inputs in rows_of("val", "val")["multi_modal_inputs"]] == [{}] * GROUP
    assert not tq.kv_list().get(PARTITION_ID)
    clear_queue()


def put_prompt(uid: str) -> None:
    tq.kv_batch_put(keys=[uid], partition_id="train", tags=[{"is_prompt": True, "status": "running"}])


def images(number: int) -> list[ImagePart]:
    pixels = torch.full((56, 84, 3), number, dtype=torch.uint8).numpy()
    return [ImagePart(FrameRecord(index, 0.0, 84, 56), pixels) for index in range(number)]


BYTES_PER_IMAGE = 56 * 84 * 3


async def put_row(writer: BlockWriter, uid: str, session: int, partition_id: str = "train") -> None:
    """One rollout's: its images, then its row, as our worker and verl's code put them."""
    await writer.write(uid, session, 8, [*images(8), *images(4)])
    row = TensorDict({"input_ids": torch.arange(100)[None]}, [1])
    keys = [f"{uid}_{session}_0"]
    await tq.async_kv_batch_put(keys=keys, partition_id=partition_id, fields=row, tags=[{"status": "success"}])


def test_blocks_outlive_their_worker_and_not_their_group() -> None:
    @ray.remote
    class Worker:
        def put(self, uid: str) -> None:
            tq.init()
            put_block(f"{uid}_initial-a", images(2), shared=True)

    for uid in ("lost", "other"):
        put_prompt(uid)
    worker = Worker.remote()
    ray.get([worker.put.remote(uid) for uid in ("lost", "other")])
    ray.kill(worker)
    assert release(trained()) == {"payload/bytes": 0.0, "payload/shared_bytes": 0.0}
    assert [image.unique().tolist() for image in get_block("lost_initial-a")] == [[2], [2]]

    tq.kv_clear(keys=["lost"], partition_id="train")  # as verl's buffer clears a group that failed
    release(trained())
    assert list(tq.kv_list()[PARTITION_ID]) == ["other_initial-a"]
    with pytest.raises(InvariantError, match="lost_initial-a"):
        get_block("lost_initial-a")
    batch = KVBatchMeta(keys=["other_0_0"], tags=[{}], partition_id="train")
    assert release(batch)["payload/shared_bytes"] == 2 * BYTES_PER_IMAGE
    assert not tq.kv_list().get(PARTITION_ID)
    clear_queue()


def test_a_row_that_comes_after_its_group_was_cleared_goes_with_its_images() -> None:
    async def put() -> None:
        writer = BlockWriter()
        for uid, session in (("late", 0), ("running", 0), ("trained", 0), ("trained", 1), ("padding", 0)):
            await put_row(writer, uid, session)
        await put_row(writer, "measured", 0, "val")

    put_prompt("running")  # the buffer has removed that of the trained group, and cleared the late one's
    asyncio.run(put())
    tq.kv_batch_put(keys=["late"], partition_id="train", tags=[{"status": "finished"}])  # of its worker, and no prompt
    keys = ["trained_0_0", "padding_0_0"]  # the other row of the group has come after the batch was made
    use = release(KVBatchMeta(keys=keys, tags=[{}, {}], partition_id="train"))
    left = tq.kv_list()
    assert sorted(left["train"]) == ["padding_0_0", "running", "running_0_0", "trained_0_0"]
    assert list(left["val"]) == ["measured_0_0"]
    assert {key.split("_")[0] for key in left[PARTITION_ID]} == {"running"} and len(left[PARTITION_ID]) == 2
    assert use["payload/bytes"] == (8 + 4 + 4 + 8 + 4) * BYTES_PER_IMAGE  # verl's padding has none; here it does
    release(KVBatchMeta(keys=["running_0_0"], tags=[{}], partition_id="train"))
    assert not tq.kv_list().get(PARTITION_ID)
    clear_queue()


def held_bytes() -> int:
    """Of tensors in the storage units themselves, whatever the controller knows."""

    def count(unit: Any) -> int:
        values = [value for by_key in unit.storage_data.field_data.values() for value in by_key.values()]
        return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))

    units = storage_units(OmegaConf.create(BACKEND))
    return sum(ray.get([unit.__ray_call__.remote(count) for unit in units]))


def test_no_bytes_are_left_after_20_steps_in_which_workers_are_killed() -> None:
    """A group whose worker dies is cleared, as verl's buffer clears one that failed, and asked again by another.

    Its rollouts may still reach the queue after that.
    """

    @ray.remote
    class Worker:
        def __init__(self) -> None:
            tq.init()
            self.writer = BlockWriter()

        async def rollouts(self, uid: str) -> None:
            for session in range(GROUP):
                await put_row(self.writer, uid, session)

    def begin(worker: Any, uid: str) -> Any:
        put_prompt(uid)
        return worker.rollouts.remote(uid)

    def clear(uid: str) -> None:
        keys = [key for key in tq.kv_list()["train"] if key.split("_")[0] == uid]
        if keys:
            tq.kv_clear(keys=keys, partition_id="train")

    draw = random.Random(0)
    before = held_bytes()
    workers = [Worker.remote() for _ in range(2)]
    ray.get([begin(worker, f"warm-{number}") for number, worker in enumerate(workers)])
    assert held_bytes() - before >= 2 * (8 + GROUP * 4) * BYTES_PER_IMAGE
    uids, most = ["warm-0", "warm-1"], 0
    for step in range(20):
        running = {f"s{step}-{number}": begin(worker, f"s{step}-{number}") for number, worker in enumerate(workers)}
        if step % 4 == 2:
            time.sleep(draw.uniform(0, 0.05))  # at any moment of its group
            ray.kill(workers[0])
            ray.wait([running.pop(lost := f"s{step}-0")])  # until it has ended or failed
            clear(lost)
            workers[0] = Worker.remote()
            running[f"{lost}-again"] = begin(workers[0], f"{lost}-again")
            ray.get(workers[0].rollouts.remote(lost))
        ray.get(list(running.values()))
        most = max(most, held_bytes())
        if step % 5 == 3:  # a group is evicted, not trained on
            clear(next(iter(running)))
        batch = trained(*uids, *running)
        tq.kv_clear(keys=[*uids, *running], partition_id="train")  # as verl's buffer does when it samples a batch
        release(batch)
        tq.kv_clear(keys=batch.keys, partition_id="train")
        uids = []
    assert most > before
    assert not any(tq.kv_list().values())
    assert held_bytes() == before
