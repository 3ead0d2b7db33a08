"""Real GRPO steps of a method that compares the rollouts of a group, against a calculation by hand from the records:
synchronous with a sequence per turn, and with devices of their own for engine and trainer.

Every fourth rollout of a group is given more frames than the prompt may hold, and so is flagged.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests.group_method import NAME
from tests.integration import test_separate_async
from tests.integration.conftest import Run
from tests.integration.method_runs import (
    GROUP_SIZE,
    GROUPS_PER_STEP,
    LENGTH_WEIGHT,
    NUM_STEPS,
    WANTED_RATE,
    lines_of,
    run_methods,
)

pytestmark = [pytest.mark.timeout(2400), pytest.mark.usefixtures("group_method", "context_method")]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sync", marks=[pytest.mark.integration, pytest.mark.long]),
        pytest.param("separate_async", marks=pytest.mark.recipes),
    ],
)
def run(request: pytest.FixtureRequest, output_dir: Path, sft_model: Path) -> Run:
    if request.param == "sync":
        return request.getfixturevalue("methods_run")
    given = ("video_tools.trainer.record_tokens", "data.train_batch_size")
    options = [option for option in test_separate_async.OPTIONS if not option.startswith(given)]
    return run_methods("groups_separate_async", (NAME,), output_dir, sft_model, *options)


@pytest.fixture
def groups(run: Run) -> list[list[dict]]:
    found = defaultdict(list)
    for line in lines_of(run, NAME):
        found[line["step"], line["uid"]].append(line)
    groups = [sorted(group, key=lambda line: line["session_id"]) for group in found.values()]
    assert len(groups) == NUM_STEPS * GROUPS_PER_STEP and {len(group) for group in groups} == {GROUP_SIZE}
    return groups


def test_the_records_hold_the_compared_rewards(groups: list[list[dict]]) -> None:
    bonuses, penalties = set(), set()
    for group in groups:
        valid = [line for line in group if not line["trajectory"].flags]
        assert [line["session_id"] for line in group if line["trajectory"].flags] == [3]
        called = [any(call.ok for turn in line["trajectory"].turns for call in turn.calls) for line in valid]
        turns = [len(line["trajectory"].turns) for line in valid]
        missing = max(0.0, WANTED_RATE - sum(called) / len(valid))
        for line, has_called, num_turns in zip(valid, called, turns, strict=True):
            longer = (num_turns - min(turns)) / (max(turns) - min(turns)) if max(turns) > min(turns) else 0.0
            reward = line["reward"]
            assert reward["curiosity"] == pytest.approx(missing * has_called)
            assert reward["length"] == pytest.approx(-LENGTH_WEIGHT * longer)
            alone = reward["accuracy"] + reward["action_bonus"]
            assert reward["score"] == pytest.approx(alone + reward["curiosity"] + reward["length"])
            bonuses.add(round(reward["curiosity"], 4))
            penalties.add(round(reward["length"], 4))
        lost = group[3]["reward"]
        assert lost["flagged"] == 1.0 and lost["score"] == lost["curiosity"] == lost["length"] == 0.0
    assert len(bonuses) > 1 or len(penalties) > 1, "rollouts that are all alike show nothing"


def test_advantages_by_hand(groups: list[list[dict]]) -> None:
    for group in groups:
        valid, flagged = group[:3], group[3]
        scores = np.array([line["reward"]["score"] for line in valid])
        expected = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-6) if np.ptp(scores) else np.zeros(3)
        assert [line["advantage"] for line in valid] == pytest.approx(list(expected), abs=1e-4)
        assert flagged["advantage"] == 0.0
        for line in valid:
            values = {value for sequence in line["sequences"] for value in sequence["advantages"]}
            assert {round(value, 4) for value in values - {0.0}} <= {round(line["advantage"], 4)}
        assert not any(any(sequence["response_mask"]) for sequence in flagged["sequences"])


def test_turns_are_sequences_where_evidence_is_dropped(
    request: pytest.FixtureRequest, groups: list[list[dict]]
) -> None:
    lines = [line for group in groups for line in group]
    is_sync = "[sync" in request.node.nodeid
    assert any(line["num_sequences"] > 1 for line in lines) == is_sync
