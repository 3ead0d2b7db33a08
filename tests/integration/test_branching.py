"""Two GRPO steps in which rollouts share their first turn, against a calculation by hand from the records."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import MAX_PROBS_DIFF, Run, assert_succeeded, run_recipe
from verl_video_tools.records.records import read_records
from verl_video_tools.records.report_curves import LOG_NAMES, read_log
from verl_video_tools.rollout.branching import Branching, branch_advantages

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]

GROUP_SIZE, TWO = 4, Branching(branches=2)


@pytest.fixture(scope="module")
def run(output_dir: Path, sft_model: Path) -> Run:
    run = run_recipe(
        "branching",
        "framethinker_grpo",
        output_dir,
        "trainer.total_training_steps=2",
        "+trainer.video_tools.record_tokens=True",
        f"++actor_rollout_ref.rollout.custom.video_tools.branching.branches={TWO.branches}",
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


def test_pairs_have_the_first_turn_in_common_and_it_was_sampled_once(groups: list[list[dict[str, Any]]]) -> None:
    num_branched = 0
    for group in groups:
        for first, second in (group[:2], group[2:]):
            texts = [[turn.text for turn in line["trajectory"].turns] for line in (first, second)]
            assert texts[0][0] == texts[1][0]
            responses = [line["sequences"][0] for line in (first, second)]
            reused = sorted(line["num_reused_tokens"] for line in (first, second))
            assert reused[0] == 0 < reused[1]
            for name in ("responses", "rollout_log_probs", "response_mask"):
                assert responses[0][name][: reused[1]] == responses[1][name][: reused[1]]
            assert all(responses[0]["response_mask"][: reused[1]])
            num_branched += texts[0][1:] != texts[1][1:]
    assert num_branched, "no two rollouts differ after a turn that they share"


def test_advantages_by_hand(groups: list[list[dict[str, Any]]]) -> None:
    num_of_their_own = 0
    for group in groups:
        rewards = {line["session_id"]: line["reward"]["score"] for line in group if not line["trajectory"].flags}
        for number, (in_prefix, after) in branch_advantages(rewards, TWO, divides_by_std=True).items():
            line = group[number]
            sequence = line["sequences"][0]
            length = len(sequence["response_mask"])
            first = max(group[each]["num_reused_tokens"] for each in (number // 2 * 2, number // 2 * 2 + 1))
            own = length if len(line["trajectory"].turns) == 1 else first
            for i, (mask, value) in enumerate(zip(sequence["response_mask"], sequence["advantages"], strict=True)):
                assert value == pytest.approx(mask * (in_prefix if i < own else after), abs=1e-5)
            num_of_their_own += len(line["trajectory"].turns) > 1 and in_prefix != after
    assert num_of_their_own, "no rollout has two advantages"


def test_the_actor_has_the_engines_probabilities_of_shared_turns(run: Run) -> None:
    (log,) = run.folder.glob(LOG_NAMES)
    steps = read_log(log)
    assert len(steps) == 2
    for values in steps.values():
        assert values["training/rollout_probs_diff_mean"] <= MAX_PROBS_DIFF
        assert values["invariant/violations"] == 0
