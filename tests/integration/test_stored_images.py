"""Rows whose images lie in the queue once are trained on as if they held verl's own tensors."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

import psutil
import pytest
import ray
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.model import extract_multi_modal_inputs

from tests.turns.framethinker import answer, choose
from tests.verl_plugin.harness import ScriptedServer, make_row, model_dir, video
from verl_video_tools.core.errors import InvariantError
from verl_video_tools.synthetic import FAMILIES, Family
from verl_video_tools.verl_plugin.actor_check import storage_units
from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
from verl_video_tools.verl_plugin.config import config_path
from verl_video_tools.verl_plugin.stored_images import PARTITION_ID, BlockWriter, get_block, put_block, release

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("transfer_queue")]

SCRIPT = [choose(10, 40), choose(50, 90), answer("B")]
GROUP = 4
BACKEND = {"storage_backend": "SimpleStorage", "SimpleStorage": {"num_data_storage_units": 2}}


def run_config(family: Family, *options: str) -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={model_dir(family)}",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.n={GROUP}",
                "actor_rollout_ref.rollout.prompt_length=4096",
                "actor_rollout_ref.rollout.response_length=4096",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={config_path('agent-loops')}",
                "actor_rollout_ref.rollout.agent.default_agent_loop=framethinker",
                "actor_rollout_ref.actor.strategy=fsdp2",
                "actor_rollout_ref.ref.strategy=fsdp2",
                *options,
            ],
        )


async def one_group(worker_class: Any, config: Any, uid: str, *, validate: bool = False) -> None:
    """All rollouts of one question, into the queue."""

    class Client:
        async def generate(self, request_id: str, **request: Any) -> Any:
            server = servers.setdefault(request_id, ScriptedServer(SCRIPT))
            return await server.generate(request_id=request_id, **request)

    servers: dict[str, ScriptedServer] = {}
    worker = worker_class.__ray_actor_class__(config, Client())
    row = make_row(video()) | {"uid": uid, "agent_name": "framethinker"}
    batch = TensorDict({}, batch_size=[1])
    for name in ("session_id", "global_steps"):
        row.pop(name)
    for name, value in row.items():
        batch[name] = NonTensorStack(value)
    batch["global_steps"] = torch.tensor([1])
    batch["index"] = torch.tensor([7])
    if validate:
        batch["validate"] = NonTensorData(True)
    partition_id = "val" if validate else "train"
    tq.kv_batch_put(keys=[uid], partition_id=partition_id, tags=[{"is_prompt": True, "status": "pending"}])
    await worker.generate_sequences(batch)
    await asyncio.gather(*worker.background_tasks)


def rows_of(uid: str, partition_id: str = "train") -> dict[str, Any]:
    listed = tq.kv_list()[partition_id]
    assert listed[uid]["status"] == "finished"
    keys = sorted(key for key in listed if key.startswith(f"{uid}_"))
    assert len(keys) == GROUP
    fields = ["input_ids", "position_ids", "multi_modal_inputs", "response_mask", "rollout_log_probs"]
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=fields)
    return {name: [data[name][row] for row in range(GROUP)] for name in fields}


def plain(value: Any) -> dict[str, Any]:
    return dict(getattr(value, "data", value))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_equal_verls(family: Family) -> None:
    """Bit for bit: tokens, positions, pixels as the engine joins them; initial frames lie in the queue once."""
    asyncio.run(one_group(AgentLoopWorkerTQ, run_config(family), f"verls-{family}"))
    asyncio.run(one_group(VideoAgentLoopWorker, run_config(family), uid := f"ours-{family}".replace("_", "-")))
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
    use = release([uid])
    assert use == {
        "payload/bytes": (initial + called) * bytes_per_patch,
        "payload/shared_bytes": initial * bytes_per_patch,
    }
    assert not tq.kv_list().get(PARTITION_ID)
    tq.kv_clear(keys=list(tq.kv_list()["train"]), partition_id="train")


def test_validation_keeps_no_pixels() -> None:
    asyncio.run(
        one_group(
            VideoAgentLoopWorker,
            run_config("qwen2_5_vl", f"actor_rollout_ref.rollout.val_kwargs.n={GROUP}"),
            "val",
            validate=True,
        )
    )
    assert [plain(inputs) for inputs in rows_of("val", "val")["multi_modal_inputs"]] == [{}] * GROUP
    assert not tq.kv_list().get(PARTITION_ID)


def test_blocks_outlive_their_worker_and_not_their_group() -> None:
    @ray.remote
    class Worker:
        def put(self, uid: str) -> None:
            from verl_video_tools.core.types import FrameRecord, ImagePart

            tq.init()
            tq.kv_batch_put(keys=[uid], partition_id="train", tags=[{"is_prompt": True, "status": "running"}])
            pixels = torch.arange(24, dtype=torch.uint8).reshape(2, 4, 3).numpy()
            put_block(f"{uid}_initial-a", [ImagePart(FrameRecord(0, 0.0, 4, 2), pixels)], shared=True)

    worker = Worker.remote()
    ray.get([worker.put.remote(uid) for uid in ("lost", "other")])
    ray.kill(worker)
    assert release([]) == {"payload/bytes": 0.0, "payload/shared_bytes": 0.0}
    (image,) = get_block("lost_initial-a")
    assert image.permute(1, 2, 0).flatten().tolist() == list(range(24))

    tq.kv_clear(keys=["lost"], partition_id="train")  # as verl's buffer clears a group that failed
    release([])
    assert list(tq.kv_list()[PARTITION_ID]) == ["other_initial-a"]
    with pytest.raises(InvariantError, match="lost_initial-a"):
        get_block("lost_initial-a")
    assert release(["other"])["payload/shared_bytes"] == 24
    assert not tq.kv_list().get(PARTITION_ID)
    tq.kv_clear(keys=["other"], partition_id="train")


def held_bytes() -> int:
    """Of tensors in the storage units themselves, whatever the controller knows."""

    def count(unit: Any) -> int:
        values = [value for by_key in unit.storage_data.field_data.values() for value in by_key.values()]
        return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))

    units = storage_units(OmegaConf.create(BACKEND))
    return sum(ray.get([unit.__ray_call__.remote(count) for unit in units]))


def test_no_bytes_are_left_after_20_steps_in_which_workers_are_killed() -> None:
    """A group whose worker dies is cleared, as verl's buffer clears one that failed, and asked again by another."""

    @ray.remote
    class Worker:
        def __init__(self) -> None:
            tq.init()
            self.writer = BlockWriter()

        async def rollouts(self, uid: str) -> None:
            from verl_video_tools.core.types import FrameRecord, ImagePart

            def images(number: int) -> list[ImagePart]:
                pixels = torch.full((56, 84, 3), number, dtype=torch.uint8).numpy()
                return [ImagePart(FrameRecord(index, 0.0, 84, 56), pixels) for index in range(number)]

            for session in range(GROUP):
                await self.writer.write(uid, session, 8, [*images(8), *images(4)])
                row = TensorDict({"input_ids": torch.arange(100)[None]}, [1])
                key = f"{uid}_{session}_0"
                await tq.async_kv_batch_put(keys=[key], partition_id="train", fields=row, tags=[{"status": "success"}])

        def pid(self) -> int:
            return os.getpid()

    def kill(worker: Any) -> None:
        """Returns when it has put its last row: verl, too, clears a group whose rollouts have ended."""
        process = psutil.Process(pids[worker])
        ray.kill(worker)
        process.wait(30)
        time.sleep(0.2)  # for what is on its way to the queue

    def begin(worker: Any, uid: str) -> Any:
        tq.kv_batch_put(keys=[uid], partition_id="train", tags=[{"is_prompt": True, "status": "running"}])
        return worker.rollouts.remote(uid)

    def clear(uid: str) -> None:
        keys = [key for key in tq.kv_list()["train"] if key.split("_")[0] == uid]
        if keys:
            tq.kv_clear(keys=keys, partition_id="train")

    draw = random.Random(0)
    before = held_bytes()
    workers = [Worker.remote() for _ in range(2)]
    pids = dict(zip(workers, ray.get([worker.pid.remote() for worker in workers]), strict=True))
    ray.get([begin(worker, f"warm-{number}") for number, worker in enumerate(workers)])
    assert held_bytes() - before >= 2 * (8 + GROUP * 4) * 56 * 84 * 3
    uids, most = ["warm-0", "warm-1"], 0
    for step in range(20):
        running = {f"s{step}-{number}": begin(worker, f"s{step}-{number}") for number, worker in enumerate(workers)}
        if step % 4 == 2:
            time.sleep(draw.uniform(0, 0.05))  # at any moment of its group
            kill(workers[0])
            clear(lost := f"s{step}-0")
            del running[lost]
            workers[0] = Worker.remote()
            pids[workers[0]] = ray.get(workers[0].pid.remote())
            running[f"{lost}-again"] = begin(workers[0], f"{lost}-again")
        ray.get(list(running.values()))
        most = max(most, held_bytes())
        if step % 5 == 3:  # a group is evicted, not trained on
            clear(next(iter(running)))
        release([*uids, *running])
        for uid in [*uids, *running]:
            clear(uid)
        uids = []
    assert most > before
    assert not tq.kv_list().get(PARTITION_ID)
    assert held_bytes() == before
