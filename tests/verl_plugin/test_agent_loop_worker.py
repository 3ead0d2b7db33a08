"""To which workers the questions of a batch go."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict

pytest.importorskip("verl.trainer.ppo.v1.agent_loop_tq", reason="the manager subclasses verl's")

from verl.trainer.ppo.v1 import agent_loop_tq

from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopManager


@pytest.mark.parametrize(
    ("num_workers", "batches", "expected"),
    [
        # Single questions, as dynamic sampling asks them again: each worker in turn.
        (4, [1, 1, 1, 1, 1], [[1], [1], [1], [1], [1]]),
        # Ten on four workers are 3, 3, 3, 1; the next two go on with the first worker, then the third.
        (4, [10, 2, 1], [[3, 3, 3, 1], [1, 1], [1]]),
        # Five on four are 2, 2, 1: the fourth worker is next.
        (4, [5, 2], [[2, 2, 1], [1, 1]]),
    ],
)
def test_the_next_batch_begins_where_the_last_one_ended(
    monkeypatch: pytest.MonkeyPatch, num_workers: int, batches: list[int], expected: list[list[int]]
) -> None:
    asked: list[tuple[int, int]] = []

    def worker(number: int) -> SimpleNamespace:
        return SimpleNamespace(
            generate_sequences=SimpleNamespace(remote=lambda chunk: asked.append((number, len(chunk))))
        )

    monkeypatch.setattr(agent_loop_tq.ray, "get", lambda refs: refs)
    manager = VideoAgentLoopManager.__new__(VideoAgentLoopManager)
    manager.agent_loop_workers = [worker(number) for number in range(num_workers)]
    for size in batches:
        manager.generate_sequences(TensorDict({"index": torch.arange(size)}, batch_size=[size]))

    assert [size for _, size in asked] == [size for sizes in expected for size in sizes]
    turns = [number for number, _ in asked]
    assert turns == [turn % num_workers for turn in range(len(turns))]
