"""Two steps of all methods in verl's mode colocate_async: groups are trained on as they finish, the others are
interrupted by the weight update and go on under the new policy."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verl.utils import hf_tokenizer

from tests.integration.conftest import MAX_PROBS_DIFF, Run, assert_succeeded, run_recipe, write_rows
from verl_video_tools.records.records import read_records

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

METHODS = {"framethinker", "videozoomer", "longvt", "videobrain", "framemind"}
GROUP_SIZE, GROUPS_PER_STEP = 4, 5


@pytest.fixture(scope="module")
def async_run(output_dir: Path, sft_model: Path) -> Run:
    """Two groups of each method start in the first step; the second waits for those of them that are left."""

    def lose_video(number: int, row: dict[str, Any]) -> None:
        if number == 0:
            row["extra_info"]["video_path"] += ".missing"

    rows = write_rows(output_dir, "colocate_async.parquet", None, lose_video)
    run = run_recipe(
        "colocate_async",
        "mixed_grpo",
        output_dir,
        "trainer.v1.trainer_mode=video_tools_colocate_async",
        "trainer.v1.sampler.max_off_policy_threshold=2",
        "trainer.v1.sampler.max_off_policy_strategy=wait",
        "trainer.total_training_steps=2",
        "video_tools.trainer.record_tokens=True",
        f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
        f"data.train_batch_size={GROUPS_PER_STEP}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.rollout.max_num_seqs=4",  # rollouts take turns, so that some are far from their end
        TRAIN_FILES=rows,
        VAL_FILES=rows,
        MODEL_PATH=str(sft_model),
    )
    assert_succeeded(run)
    return run


@pytest.fixture(scope="module")
def lines(async_run: Run) -> list[dict]:
    return list(read_records(async_run.folder / "trajectories"))


def last_difference(line: dict) -> float:
    """Between engine and actor, of the log-probability of the last token that the policy wrote."""
    sequence = line["sequences"][-1]
    last = max(i for i, keep in enumerate(sequence["response_mask"]) if keep)
    return abs(sequence["rollout_log_probs"][last] - sequence["old_log_probs"][last])


def test_both_steps_train_whole_groups_of_all_methods(async_run: Run, lines: list[dict]) -> None:
    assert Counter(line["step"] for line in lines) == dict.fromkeys((1, 2), GROUPS_PER_STEP * GROUP_SIZE)
    groups = defaultdict(list)
    for line in lines:
        groups[line["uid"]].append(line["session_id"])
    assert all(sorted(members) == list(range(GROUP_SIZE)) for members in groups.values())
    assert {line["trajectory"].method for line in lines} == METHODS
    executed = {
        line["trajectory"].method for line in lines for call in line["trajectory"].executed_calls() if call.frames
    }
    assert len(executed) >= 3  # a policy of so short a cold start may get every call of one method wrong
    assert "training/rollout_probs_diff_mean" in async_run.log
    assert (async_run.folder / "huggingface" / "config.json").exists()


def test_rollouts_go_on_under_the_next_policy(lines: list[dict]) -> None:
    assert {tuple(line["policy_version"]) for line in lines if line["step"] == 1} <= {(0, 0), (-1, -1)}
    continued = [line for line in lines if line["policy_version"] == [0, 1]]
    assert continued and {line["step"] for line in continued} == {2}
    assert np.mean([last_difference(line) for line in continued]) <= MAX_PROBS_DIFF


def test_tokens_are_those_of_the_policy_that_the_record_names(lines: list[dict]) -> None:
    current = [line for line in lines if line["policy_version"] == [line["step"] - 1] * 2]
    stale = [line for line in lines if line["policy_version"] == [0, 0] and line["step"] == 2]
    assert np.mean([last_difference(line) for line in current]) <= MAX_PROBS_DIFF
    assert not stale or np.mean([last_difference(line) for line in stale]) > MAX_PROBS_DIFF


def test_no_turn_goes_on_after_its_stop_string(lines: list[dict], sft_model: Path) -> None:
    turns = [turn.text for line in lines for turn in line["trajectory"].turns if "</video_zoom>" in turn.text]
    rests = [text.partition("</video_zoom>")[2] for text in turns]
    # The token that completes the string may hold more than its `>`: this tokenizer knows `>{"` and `><`, among others.
    vocabulary = hf_tokenizer(str(sft_model)).get_vocab()
    assert rests and set(rests) <= {token.removeprefix(">") for token in vocabulary if token.startswith(">")}


def test_a_row_that_fails_is_flagged_and_not_replaced_for_ever(lines: list[dict]) -> None:
    flagged = [line for line in lines if line["trajectory"].flags]
    assert [line["trajectory"].stop_reason for line in flagged] == ["video_error"] * GROUP_SIZE
    assert {line["advantage"] for line in flagged} == {0.0}
    assert {line["policy_version"][0] for line in flagged} == {-1}
