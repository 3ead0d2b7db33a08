"""Weights on their way from two trainers to two inference workers, in processes of their own."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

pytest.importorskip("verl.checkpoint_engine", reason="the engine is registered with verl")

from tests.verl_plugin.ranks import warm

pytestmark = pytest.mark.slow  # the process that it forks from imports verl

WEIGHTS = {
    "layer.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "layer.bias": torch.tensor(0.5, dtype=torch.bfloat16),
    "visual.transposed": torch.arange(6, dtype=torch.int64).reshape(2, 3).T,
}


def process(end: Connection, is_master: bool, sends: bool) -> None:
    """Does what verl's manager asks of one worker."""
    from verl_video_tools.verl_plugin.platforms import gloo_checkpoint_engine
    from verl_video_tools.verl_plugin.platforms.gloo_checkpoint_engine import GlooCheckpointEngine

    gloo_checkpoint_engine.ray.util.get_node_ip_address = lambda: "127.0.0.1"  # in this process only; no Ray runs here
    engine = GlooCheckpointEngine(bucket_size=1 << 20, is_master=is_master)

    async def received() -> dict[str, torch.Tensor]:
        return {name: weight async for name, weight in engine.receive_weights()}

    for _ in range(2):  # verl makes a new group for every transfer
        end.send(engine.prepare())
        engine.init_process_group(**end.recv())
        if sends:
            asyncio.run(engine.send_weights(iter(WEIGHTS.items())))
            end.send(None)
        else:
            end.send({name: weight.tolist() for name, weight in asyncio.run(received()).items()})
        engine.finalize()


def test_every_inference_worker_receives_every_weight() -> None:
    from verl.checkpoint_engine import CheckpointEngineRegistry

    from verl_video_tools.verl_plugin.platforms.gloo_checkpoint_engine import GlooCheckpointEngine

    assert CheckpointEngineRegistry.get("gloo") is GlooCheckpointEngine
    context = warm()
    ends, processes = [], []
    for number in range(4):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=process, args=(theirs, number == 0, number < 2), daemon=True))
        processes[-1].start()
        ends.append(ours)
    for _ in range(2):
        metadata = [receive(end) for end in ends]
        trainers, workers = GlooCheckpointEngine.build_topology(2, 2, metadata)
        for number, end in enumerate(ends):
            of_kind, index = (trainers, number) if number < 2 else (workers, number - 2)
            end.send({name: values[index] for name, values in of_kind.items()})
        results = [receive(end) for end in ends]
        assert results[:2] == [None, None]
        assert results[2:] == [{name: weight.tolist() for name, weight in WEIGHTS.items()}] * 2
    for each in processes:
        each.join(30)
        assert each.exitcode == 0


def receive(end: Connection) -> Any:
    assert end.poll(120), "a worker has said nothing for two minutes"
    return end.recv()
