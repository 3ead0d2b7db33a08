"""Rows of a balanced batch, as real TransferQueue storage hands them to the training ranks: bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pytest
import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict, maybe_fix_3d_position_ids
from verl.utils.transferqueue_utils import tqbridge

from tests.verl_plugin.trainer_batches import make_trainer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120), pytest.mark.usefixtures("transfer_queue")]

PAD_TOKEN_ID = 9
Row = dict[str, Any]
Lengths = Mapping[str, tuple[int, int]]
"""Tokens of prompt and response of each sequence, by `{group}_{rollout}_{sequence}`."""

FIELDS = (
    *("prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask", "rm_scores"),
    "multi_modal_inputs",
)
GROUP_A: Lengths = {"a_0_0": (3, 2), "a_1_0": (3, 4), "a_1_1": (7, 2), "a_1_2": (9, 5)}
GROUP_B: Lengths = {"b_0_0": (3, 6), "b_0_1": (9, 1), "b_1_0": (3, 7), "b_2_0": (4, 3)}
CASES: dict[str, Lengths] = {
    "unequal": {**GROUP_A, "b_0_0": (3, 6), "b_0_1": (9, 1)},
    "unequal, padded": {**GROUP_A, **GROUP_B},
    "equal": dict.fromkeys(("a_0_0", "a_0_1", "a_1_0", "b_0_0", "b_1_0", "b_1_1"), (4, 3)),
    "equal, padded": dict.fromkeys(("a_0_0", "a_0_1", "b_0_0"), (3, 2)),
}
"""Those of 6 sequences fill mini-batches of 6; others are padded to 6 or 12."""


def make_row(prompt_len: int, response_len: int, seed: int, fields: Sequence[str]) -> Row:
    """One sequence with what verl's agent loop stores of it; floats of any bits but NaN's, and pixels of its own."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-40, 38, shape, generator=generator)

    length = prompt_len + response_len
    input_ids = torch.randint(10, 2**40, (length,), generator=generator)
    mask = torch.randint(0, 2, (response_len,), generator=generator)
    patches = 2 + seed % 3
    row = {
        "prompts": input_ids[:prompt_len],
        "responses": input_ids[prompt_len:],
        "input_ids": input_ids,
        "position_ids": torch.randint(0, 9999, (4, length), generator=generator),
        "response_mask": mask,
        "loss_mask": mask.clone(),
        "rm_scores": draw(response_len),
        "rollout_log_probs": draw(response_len),
        "multi_modal_inputs": {
            "pixel_values": draw(patches, 12).to(torch.bfloat16),
            "image_grid_thw": torch.tensor([[1, 1, patches]]),
        },
    }
    return {name: row[name] for name in fields}


def longer(row: Row) -> Row:
    """With a masked token at its end."""
    added = {"input_ids": PAD_TOKEN_ID, "responses": PAD_TOKEN_ID}
    added |= dict.fromkeys(("response_mask", "loss_mask", "rm_scores", "rollout_log_probs"), 0)
    lengthened = {
        name: torch.cat([row[name], row[name].new_tensor([value])]) for name, value in added.items() if name in row
    }
    positions = row["position_ids"]
    return row | lengthened | {"position_ids": torch.cat([positions, positions[:, -1:] + 1], dim=1)}


def padded(row: Row) -> Row:
    """A copy that neither trains nor counts."""
    zeros = torch.zeros_like(row["responses"])
    return row | {
        "response_mask": zeros,
        "loss_mask": zeros,
        "rm_scores": zeros.float(),
        "rollout_log_probs": zeros.float(),
    }


def bits(value: Any) -> Any:
    """Types, shapes and bytes of tensors in place of them: NaN equals itself, and 0.0 does not equal -0.0."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.contiguous().view(torch.uint8).numpy().tobytes()
    if isinstance(value, Mapping):
        return {name: bits(item) for name, item in value.items()}
    return value


def put(rows: Mapping[str, Row]) -> KVBatchMeta:
    """Store all sequences of a rollout at once, as verl's agent loop does."""
    tags = {
        key: {
            "prompt_len": len(row["prompts"]),
            "response_len": len(row["responses"]),
            "seq_len": len(row["input_ids"]),
        }
        for key, row in rows.items()
    }
    for _, rollout in groupby(rows, key=lambda key: key.rsplit("_", 1)[0]):
        keys = list(rollout)
        fields = list_of_dict_to_tensordict([rows[key] for key in keys])
        tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=[tags[key] for key in keys])
    return KVBatchMeta(keys=list(tags), tags=list(tags.values()), partition_id="train")


@pytest.fixture(scope="module")
def workers(transfer_queue: None) -> Sequence[Any]:
    """Two processes that get and put rows as verl's workers do."""

    @ray.remote
    class Worker:
        @tqbridge()
        def rows(self, data: TensorDict, names: Sequence[str]) -> list[Row]:
            maybe_fix_3d_position_ids(data)
            values = {name: data[name].unbind() if name == "position_ids" else data[name] for name in names}
            return [
                {name: getattr(column[row], "data", column[row]) for name, column in values.items()}
                for row in range(len(data))
            ]

        @tqbridge()
        def entropy(self, data: TensorDict) -> TensorDict:
            return TensorDict({"entropy": -data["rm_scores"]}, batch_size=len(data))

    return [Worker.remote(), Worker.remote()]


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("lengths", CASES.values(), ids=CASES)
@pytest.mark.parametrize("log_probs", [True, False], ids=["log_probs", "no_log_probs"])
def test_ranks_get_what_was_put(workers: Sequence[Any], lengths: Lengths, num_ranks: int, log_probs: bool) -> None:
    """Padding is a copy of a shortest sequence; of a rank's equally long sequences the first one is longer by one."""
    fields = [*FIELDS, *["rollout_log_probs"] * log_probs]
    rows = {key: make_row(*lens, seed, fields) for seed, (key, lens) in enumerate(lengths.items())}
    shortest = min(map(sum, lengths.values()))
    padding = [padded(row) for row in rows.values() if len(row["input_ids"]) == shortest]
    batch = make_trainer(num_ranks, log_probs)._balance_batch(put(rows), {})
    assert len(batch) % 6 == 0 and set(rows) <= set(batch.keys)

    written = {}
    per_rank = len(batch) // num_ranks
    for first, worker in zip(range(0, len(batch), per_rank), workers, strict=False):
        keys, tags = batch.keys[first : first + per_rank], batch.tags[first : first + per_rank]
        expected = [[rows[key]] if key in rows else padding for key in keys]  # any of these
        if len({len(row["input_ids"]) for (row, *_) in expected}) == 1:
            expected[0] = [longer(row) for row in expected[0]]
        part = KVBatchMeta(keys=keys, tags=tags, partition_id="train")
        found = ray.get(worker.rows.remote(part, fields), timeout=60)
        for row, tag, choices in zip(found, tags, expected, strict=True):
            assert bits(row) in [bits({name: choice[name] for name in fields}) for choice in choices]
            assert tag["seq_len"] == len(row["input_ids"]) == tag["prompt_len"] + tag["response_len"]
        ray.get(worker.entropy.remote(part), timeout=60)
        written |= {key: -row["rm_scores"] for key, row in zip(keys, found, strict=True)}

    read = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["entropy"])["entropy"]
    assert [bits(row) for row in read] == [bits(written[key]) for key in batch.keys]
    tq.kv_clear(keys=batch.keys, partition_id="train")
