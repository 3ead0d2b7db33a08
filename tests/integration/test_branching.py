"""Two GRPO steps in which rollouts share their first turn, against a calculation by hand from the records."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import MAX_PROBS_DIFF, Run, assert_succeeded, run_recipe
from verl_video_tools.records.records import read_records
from verl_video_tools.records.report import LOG_NAMES, read_log

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]

GROUP_SIZE = 4


@pytest.fixture(scope="module")
def run(output_dir: Path, sft_model: Path) -> Run:
    run = run_recipe(
        "branching",
        "framethinker_grpo",
        output_dir,
        "trainer.total_training_steps=2",
        "+trainer.video_tools.record_tokens=True",
        "++actor_rollout_ref.rollout.custom.video_tools.branching.branches=2",
        MODEL_PATH=str(sft_model),
        ROLLOUT_N=str(GROUP_SIZE),
        TRAIN_BATCH_SIZE="8",
        LEARNING_RATE="1e-3",
    )
    assert_succeeded(run)
    return run


@pytest.fixture
def groups(run: Run) -> list[list[dict[str, Any]]]:
    found = defaultdict(list)
    for line in read_records(run.folder / "trajectories"):
        found[line["step"], line["uid"]].append(line)
    groups = [sorted(group, key=lambda line: line["session_id"]) for group in found.values()]
    assert len(groups) == 2 * 8 and {len(group) for group in groups} == {GROUP_SIZE}
    return groups


def length_of_first_turn(line: dict[str, Any]) -> int:
    mask = line["sequences"][0]["response_mask"]
    return mask.index(0) if 0 in mask else len(mask)


def test_pairs_have_the_first_turn_in_common_and_it_was_sampled_once(groups: list[list[dict[str, Any]]]) -> None:
    num_branched = 0
    for group in groups:
        for pair in (group[:2], group[2:]):
            texts = [[turn.text for turn in line["trajectory"].turns] for line in pair]
            assert texts[0][0] == texts[1][0]
            (length,) = {length_of_first_turn(line) for line in pair}
            first, second = (line["sequences"][0] for line in pair)
            for name in ("responses", "rollout_log_probs", "response_mask"):
                assert first[name][:length] == second[name][:length]
            reused = [line["num_generated_tokens"] - line["num_sampled_tokens"] for line in pair]
            assert sorted(reused) == [0, length]
            num_branched += texts[0][1:] != texts[1][1:]
    assert num_branched, "no two rollouts differ after a turn that they share"


def test_advantages_by_hand(groups: list[list[dict[str, Any]]]) -> None:
    num_of_their_own = 0
    for group in groups:
        assert not any(line["trajectory"].flags for line in group)
        rewards = [line["reward"]["score"] for line in group]
        pairs = [sum(rewards[:2]) / 2, sum(rewards[2:]) / 2]
        scale = 0.75 / (statistics.stdev(rewards) + 1e-6)
        for number, line in enumerate(group):
            in_prefix = scale * (pairs[number // 2] - pairs[1 - number // 2])
            after = scale * (rewards[number] - rewards[number ^ 1])
            has_parted = len(line["trajectory"].turns) > 1
            begin = length_of_first_turn(line)
            sequence = line["sequences"][0]
            for i, (mask, value) in enumerate(zip(sequence["response_mask"], sequence["advantages"], strict=True)):
                assert value == pytest.approx(mask * (after if has_parted and i >= begin else in_prefix), abs=1e-5)
            num_of_their_own += has_parted and in_prefix != after
            assert line["advantage"] == pytest.approx(in_prefix, abs=1e-5)
    assert num_of_their_own, "no rollout has two advantages"


def test_the_actor_has_the_engines_probabilities_of_shared_turns(run: Run) -> None:
    (log,) = run.folder.glob(LOG_NAMES)
    steps = read_log(log)
    assert len(steps) == 2
    for values in steps.values():
        assert values["training/rollout_probs_diff_mean"] <= MAX_PROBS_DIFF
        assert values["invariant/violations"] == 0
