"""Rows of a training batch: rollouts of one or several sequences, padding, and lengths that verl's update reads."""

# Imports after a skip: what they name is not there on every machine.

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("verl_video_tools.verl_plugin.trainer", reason="the trainer subclasses verl's")
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import maybe_fix_3d_position_ids

from tests.verl_plugin.trainer_batches import Step
from verl_video_tools.verl_plugin.batching import equal_groups, group_rollouts, lengthen, spread_padding


def test_groups_without_a_difference_are_named() -> None:
    uids = ["a", "a", "b", "b", "c"]
    assert equal_groups(uids, [1.05, 1.05, 1.05, 1.0, 0.0]) == {"a", "c"}


def test_rows_are_grouped_by_rollout_and_ordered_by_turn() -> None:
    rollouts = group_rollouts(["a_0_1", "b-2_1_0", "a_0_10", "a_0_2", "a_1_0", "a_0_0"])
    assert [(rollout.uid, rollout.session_id) for rollout in rollouts] == [("a", 0), ("b-2", 1), ("a", 1)]
    assert rollouts[0].keys == ("a_0_0", "a_0_1", "a_0_2", "a_0_10")


@pytest.mark.parametrize(("num_ranks", "num_mini_batches"), [(1, 1), (1, 3), (2, 3), (3, 2)])
def test_every_mini_batch_gets_its_share_of_padding(num_ranks: int, num_mini_batches: int) -> None:
    is_padding = [row >= 7 for row in range(12)] if num_ranks == 1 else [row % 3 > 0 for row in range(12)]
    order = spread_padding(is_padding, num_ranks, num_mini_batches)
    assert sorted(order) == list(range(12))
    per_rank, size = 12 // num_ranks, 12 // num_ranks // num_mini_batches
    for first in range(0, 12, per_rank):
        rows = order[first : first + per_rank]
        assert sorted(rows) == list(range(first, first + per_rank))  # none has moved to another rank
        shares = [sum(is_padding[row] for row in rows[at : at + size]) for at in range(0, per_rank, size)]
        assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
@given(data=st.data())
def test_rows_to_train_on_reach_every_mini_batch(num_ranks: int, data: st.DataObject) -> None:
    """Over all ranks together, wherever they are, as soon as there are as many."""
    num_mini_batches = data.draw(st.integers(1, 4))
    per_rank = num_mini_batches * data.draw(st.integers(1, 3))
    flags = st.lists(st.booleans(), min_size=num_ranks * per_rank, max_size=num_ranks * per_rank)
    is_padding = data.draw(flags)
    order = spread_padding(is_padding, num_ranks, num_mini_batches)
    counts = [0] * num_mini_batches
    for place, row in enumerate(order):
        assert place // per_rank == row // per_rank
        counts[place % per_rank // (per_rank // num_mini_batches)] += not is_padding[row]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("flagged", [("a_1", "b_0"), ("a_1", "b_1"), ("a_0", "a_1", "b_0")])
def test_no_mini_batch_is_left_with_flagged_rollouts_alone(
    monkeypatch: pytest.MonkeyPatch, ranks: int, flagged: tuple[str, ...]
) -> None:
    """Those of an outage finish together, and would make up one: with its mean of nothing, or a step along momentum."""
    step = Step(monkeypatch, flagged=flagged, ranks=ranks)
    on_rank = [{*step.batch.keys[first : first + 12 // ranks]} for first in range(0, 12, 12 // ranks)]
    step.advantages()
    keys, size = step.batch.keys, 6 // ranks
    assert [{*keys[first : first + 12 // ranks]} for first in range(0, 12, 12 // ranks)] == on_rank
    for number in range(2):  # verl's mini-batches: consecutive rows of each rank
        rows = [keys[first + number * size + i] for first in range(0, 12, 12 // ranks) for i in range(size)]
        assert any(step.queue.rows[key]["response_mask"].any() for key in rows)
    assert not step.trainer._updates.skips_update


def test_too_few_valid_rollouts_for_all_mini_batches_update_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = Step(monkeypatch, flagged=("a_1", "b_0", "b_1"))  # a_0 has one sequence
    step.advantages()
    assert step.trainer._update_actor(step.batch, {}) is step.batch
    assert "1 valid rollouts do not fill a mini-batch each" in caplog.text


@pytest.mark.parametrize("ranks", [1, 2])
def test_padding_shows_a_picture_and_fills_no_mini_batch(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    step = Step(monkeypatch, ranks=ranks)
    assert len(step.batch.keys) == len(step.batch.tags) == 12  # 8 sequences for mini-batches of 6
    padded = [tag.get("is_padding", False) for tag in step.batch.tags]
    per_rank, size = 12 // ranks, 6 // ranks
    for number in range(2):  # verl's mini-batches: consecutive rows of each rank
        rows = [first + number * size + i for first in range(0, 12, per_rank) for i in range(size)]
        assert 1 <= sum(padded[row] for row in rows) <= 3
    shortest = step.queue.rows["a_0_0"]
    for key, is_padding, tag in zip(step.batch.keys, padded, step.batch.tags, strict=True):
        row = step.queue.rows[key]
        assert "pixel_values" in row["multi_modal_inputs"]
        assert tag["seq_len"] == len(row["input_ids"]) == len(row["prompts"]) + len(row["responses"])
        assert row["position_ids"].shape == (4, tag["seq_len"])
        if is_padding:
            assert row["input_ids"].tolist()[:5] == shortest["input_ids"].tolist()
            assert not row["response_mask"].any() and not row["loss_mask"].any() and not row["rm_scores"].any()
            assert len(row["response_mask"]) == len(row["rollout_log_probs"]) == len(row["responses"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_positions_of_equally_long_sequences_are_packed_as_verl_reads_them(
    monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """What a rank's worker gets, by the code of TransferQueue and verl: equal lengths alone would be packed as ragged
    in another axis."""
    step = Step(monkeypatch, ranks=ranks)
    names = ["a_0_0", "b_0_0", "b_1_0"]  # each of 3 + 2 tokens; padding copies one of them
    tags = [{"seq_len": 5, "prompt_len": 3, "response_len": 2} for _ in names]
    batch = step.trainer._balance_batch(KVBatchMeta(keys=names, tags=tags, partition_id="train"), {})
    per_rank = len(batch.keys) // ranks
    for first in range(0, len(batch.keys), per_rank):
        rows = slice(first, first + per_rank)
        data = step.queue.kv_batch_get(batch.keys[rows], "train", ["position_ids"])
        maybe_fix_3d_position_ids(data)
        shapes = [tuple(positions.shape) for positions in data["position_ids"].unbind()]
        assert shapes == [(4, tag["seq_len"]) for tag in batch.tags[rows]]


@pytest.mark.parametrize("log_probs", [True, False])
def test_of_equally_long_sequences_one_becomes_longer(monkeypatch: pytest.MonkeyPatch, log_probs: bool) -> None:
    step = Step(monkeypatch, log_probs=log_probs)
    names = ("a_0_0", "b_0_0", "b_1_0")  # each of 3 + 2 tokens
    tags = [{"seq_len": 5, "prompt_len": 3, "response_len": 2} for _ in names]
    batch = KVBatchMeta(keys=list(names), tags=tags, partition_id="train")
    lengthen(batch, 1, step.trainer.tokenizer.pad_token_id, ["rollout_log_probs"] if log_probs else [])
    assert [tag["seq_len"] for tag in batch.tags] == [5, 6, 5]
    rows = [step.queue.rows[name] for name in names]
    assert [row["position_ids"].shape for row in rows] == [(4, 5), (4, 6), (4, 5)]
    added = [row[name].tolist()[-1] for row in rows[1:2] for name in ("response_mask", "loss_mask", "rm_scores")]
    assert added == [0, 0, 0]
    lengths = {name: len(value) for name, value in rows[1].items() if name in ("responses", "rollout_log_probs")}
    assert lengths == dict.fromkeys(("responses", *["rollout_log_probs"] * log_probs), 3)
