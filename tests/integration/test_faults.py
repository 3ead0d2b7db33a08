"""Which check notices which silent training bug. One real run without weight sync, whose rows plant the others.

| fault | noticed by |
|---|---|
| loss on observation tokens | the invariants at the end of each rollout: it is flagged and trains nobody |
| wrong position ids | log-probabilities of engine and actor: they differ from the first step on, and the run warns |
| stale weights in the engine | the same: they differ from the step on that follows the first update |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.integration.conftest import (
    GRPO_OPTIONS,
    INSTRUMENTED,
    MAX_PROBS_DIFF,
    Run,
    assert_succeeded,
    run_recipe,
    write_rows,
)
from verl_video_tools.records.records import read_records

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def faulty_run(output_dir: Path, sft_model: Path) -> Run:
    """Three steps; every batch has two rows with each fault and two whose video does not exist."""
    rows = write_rows(output_dir, "faults.parquet", "framethinker", plant)
    run = run_recipe(
        "faults",
        "mixed_grpo",
        output_dir,
        *GRPO_OPTIONS,
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={Path(__file__).with_name('faulty_loops.yaml')}",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=tests.integration.faults.FaultyManager",
        f"++trainer.video_tools.max_probs_diff={MAX_PROBS_DIFF}",
        TRAIN_FILES=rows,
        VAL_FILES=rows,
        MODEL_PATH=str(sft_model),
        TRAIN_BATCH_SIZE="8",
        ROLLOUT_N="4",
        LEARNING_RATE="1e-3",
        VVT_TEST_SKIP_WEIGHT_SYNC="1",
        **INSTRUMENTED,
    )
    assert_succeeded(run)
    return run


@pytest.fixture(scope="module")
def lines(faulty_run: Run) -> list[dict]:
    return list(read_records(faulty_run.folder / "trajectories"))


def plant(number: int, row: dict) -> None:
    fault = ("missing", "mask", "flat", "flagging")[number % 4]
    row["agent_name"] = f"framethinker_{'flagging' if fault == 'missing' else fault}"
    row["extra_info"]["fault"] = fault
    if fault == "missing":
        row["extra_info"]["video_path"] += ".missing"


def of(lines: Sequence[dict], fault: str, step: int | None = None) -> list[dict]:
    return [line for line in lines if line["extra_info"]["fault"] == fault and step in (None, line["step"])]


def mean_difference(lines: Sequence[dict]) -> float:
    """Of the log-probabilities that the engine sampled with and that verl's actor computed, over sampled tokens."""
    differences = [
        abs(engine - actor)
        for line in lines
        for engine, actor, keep in zip(
            *(line["sequences"][0][name] for name in ("rollout_log_probs", "old_log_probs", "response_mask")),
            strict=True,
        )
        if keep
    ]
    assert len(differences) > 50
    return float(np.mean(differences))


def healthy(lines: Sequence[dict], step: int) -> list[dict]:
    return [line for line in of(lines, "flagging", step) if not line["trajectory"].flags]


def test_a_mask_on_observations_breaks_an_invariant(lines: list[dict]) -> None:
    with_context = [line for line in of(lines, "mask") if len(line["trajectory"].turns) > 1]
    assert len(with_context) > 5
    for line in with_context:
        assert line["trajectory"].flags == ["invariant"]
        assert "the loss mask covers" in line["trajectory"].error
        assert line["advantage"] == 0.0
    others = of(lines, "flat") + of(lines, "flagging")
    assert not any("invariant" in line["trajectory"].flags for line in others)


def test_wrong_positions_part_engine_and_actor(lines: list[dict]) -> None:
    assert mean_difference(of(lines, "flat", step=1)) > 10 * MAX_PROBS_DIFF
    assert mean_difference(healthy(lines, step=1)) <= MAX_PROBS_DIFF


def test_stale_weights_part_engine_and_actor(lines: list[dict]) -> None:
    """A step in which all groups earned equal rewards moves no weight, so that the engine's are not stale yet."""
    moved = min(line["step"] for line in lines if line["advantage"] != 0.0)
    assert mean_difference(healthy(lines, step=moved + 1)) > 10 * MAX_PROBS_DIFF


def test_a_run_warns_that_engine_and_actor_differ(faulty_run: Run) -> None:
    for step in (1, 2, 3):  # wrong positions from the first step on, stale weights besides from the first update on
        assert f"step {step}: alarm engine_gap: engine and actor differ by" in faulty_run.log


def test_a_flagged_rollout_moves_no_siblings_advantage(lines: list[dict]) -> None:
    groups = defaultdict(list)
    for line in of(lines, "flagging"):
        groups[line["step"], line["uid"]].append(line)
    for members in groups.values():
        valid = [line for line in members if not line["trajectory"].flags]
        flagged = [line for line in members if line["trajectory"].flags]
        assert len(flagged) == 1 and flagged[0]["advantage"] == 0.0
        scores = np.array([line["reward"]["score"] for line in valid])
        expected = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-6)
        assert [line["advantage"] for line in valid] == pytest.approx(list(expected), abs=1e-4)


def test_missing_videos_are_named_and_the_run_goes_on(lines: list[dict]) -> None:
    missing = of(lines, "missing")
    assert len(missing) == 3 * 2 * 4
    for line in missing:
        assert line["trajectory"].stop_reason == "video_error"
        assert line["extra_info"]["video_path"] in line["trajectory"].error
        assert line["num_generated_tokens"] == 0
        assert line["advantage"] == 0.0
