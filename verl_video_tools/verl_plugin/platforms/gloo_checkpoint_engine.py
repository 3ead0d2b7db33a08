"""Weights from trainer to inference engines over gloo, where the two are apart and there is no GPU.

verl's mode `separate_async` refuses verl's engine `naive`, for trainer and engine in one process, and all others of
verl 0.9.1 need a GPU, or a library for RDMA. Selected by two options of verl:

    actor_rollout_ref.rollout.checkpoint_engine.backend=gloo
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=verl_video_tools.verl_plugin.platforms.gloo_checkpoint_engine

On GPUs take verl's `nccl`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed as dist
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

_TIMEOUT = timedelta(minutes=10)
_NOT_SENDING = -1
"""Rank of trainers but the first: they take part in gathering each weight, and send none."""


@CheckpointEngineRegistry.register("gloo")
class GlooCheckpointEngine(CheckpointEngine):
    """Trainer 0 broadcasts one weight after the other to all inference workers.

    Args:
        bucket_size: in bytes; verl gives it to all engines, and this one sends whole weights.
        is_master: this is trainer 0.
    """

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._is_master = is_master
        self._store: dist.TCPStore | None = None
        self._group: dist.ProcessGroupGloo | None = None
        self._rank = _NOT_SENDING

    def prepare(self) -> tuple[str, int] | None:
        """Address at which the others find trainer 0."""
        if not self._is_master:
            return None
        host = ray.util.get_node_ip_address()
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
        return host, self._store.port

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Arguments of `init_process_group` for each trainer, and for each inference worker."""
        world_size = 1 + rollout_world_size

        def arguments(ranks: list[int]) -> dict[str, list[Any]]:
            each = len(ranks)
            return {"rank": ranks, "world_size": [world_size] * each, "address": [metadata[0]] * each}

        not_sending = [_NOT_SENDING] * (actor_wg_world_size - 1)
        return arguments([0, *not_sending]), arguments(list(range(1, world_size)))

    def init_process_group(self, rank: int, world_size: int, address: tuple[str, int]) -> None:
        self._rank = rank
        if rank == _NOT_SENDING:
            return
        store = self._store or dist.TCPStore(*address, is_master=False, timeout=_TIMEOUT)
        self._group = dist.ProcessGroupGloo(store, rank, world_size, _TIMEOUT)

    def finalize(self) -> None:
        self._group = self._store = None

    async def send_weights(
        self, weights: Generator[tuple[str, torch.Tensor], None, None], global_steps: int | None = None
    ) -> None:
        for name, weight in weights:
            if self._rank == 0:
                self._broadcast_header((name, list(weight.shape), str(weight.dtype).removeprefix("torch.")))
                self._broadcast(weight.detach().contiguous().view(-1).view(torch.uint8))
        if self._rank == 0:
            self._broadcast_header(None)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        while (header := self._broadcast_header(None)) is not None:
            name, shape, dtype = header
            weight = torch.empty(shape, dtype=getattr(torch, dtype))
            self._broadcast(weight.view(-1).view(torch.uint8))
            yield name, weight

    def _broadcast_header(self, header: tuple[str, list[int], str] | None) -> Any:
        """Name, shape and precision of the next weight; None after the last one. Receivers' arguments are not used."""
        data = bytearray(json.dumps(header).encode()) if self._rank == 0 else bytearray()
        length = torch.tensor([len(data)])
        self._broadcast(length)
        content = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(int(length), dtype=torch.uint8)
        self._broadcast(content)
        return json.loads(content.numpy().tobytes())

    def _broadcast(self, tensor: torch.Tensor) -> None:
        assert self._group is not None, "verl prepares the group before each transfer"
        self._group.broadcast(tensor, 0).wait()
