"""A rollout reaches its reward worker unchanged, by the way of sending that the recipes choose."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from verl import DataProto


@pytest.mark.parametrize("method", ["", "numpy"])
def test_the_same_bits_arrive(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_DATAPROTO_SERIALIZATION_METHOD", method)
    ids_1L = torch.randint(0, 150_000, (1, 50_000))
    tensors = {
        "input_ids": ids_1L,
        "attention_mask": torch.ones_like(ids_1L),
        "position_ids": torch.arange(50_000)[None],
        "is_sampled": ids_1L > 7,
        "values": torch.randn(1, 5).to(torch.bfloat16),
    }
    record = {"video_tools": "a record", "turns": [1, None]}
    sent = DataProto(TensorDict(tensors, batch_size=1), {"tool_extra_fields": np.array([record], dtype=object)})
    found = pickle.loads(pickle.dumps(sent))
    assert set(found.batch.keys()) == set(tensors)
    for name, tensor in tensors.items():
        assert found.batch[name].dtype == tensor.dtype and torch.equal(found.batch[name], tensor), name
    assert found.non_tensor_batch["tool_extra_fields"].tolist() == [record]
