"""Which check notices which fault, in one real run whose rows plant them; the run goes on with all of them.

| fault | noticed by |
|---|---|
| loss on observation tokens | the invariants at the end of each rollout: it is flagged and trains nobody |
| wrong position ids | log-probabilities of engine and actor: they differ from the first step on, and the run warns |
| stale weights in the engine | the same: they differ from the step on that follows the first update |
| a video that does not exist | the rollout ends as `video_error`; it is flagged |
| requests that the engine aborts | the rollout ends as `aborted`; it is flagged |
| a judge that dies after the first step | rollouts without a verdict are flagged |
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.integration.conftest import (
    GRPO_OPTIONS,
    INSTRUMENTED,
    MAX_PROBS_DIFF,
    NUM_STEPS,
    Run,
    assert_succeeded,
    run_recipe,
    write_rows,
)
from tests.judge_server import JudgeServer
from verl_video_tools.records.records import read_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

GROUP_SIZE = 4
FAULTS = ("missing", "mask", "flat", "flagging", "flagging", "aborted", "judge", "mask")
"""Of the rows of a step, in their order. `flagging` flags the first rollout of a group; its others are healthy."""


@pytest.fixture(scope="module")
def faulty_run(output_dir: Path, sft_model: Path) -> Run:
    """Three steps."""
    rows = write_rows(output_dir, "faults.parquet", "framethinker", plant)
    name = "faults"
    first_step = output_dir / name / "trajectories" / "step_000001.jsonl"
    with JudgeServer() as judge:
        watcher = threading.Thread(target=_kill_after, args=(judge, first_step), daemon=True)
        watcher.start()
        run = run_recipe(
            name,
            "mixed_grpo",
            output_dir,
            *GRPO_OPTIONS,
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={Path(__file__).with_name('faulty_loops.yaml')}",
            f"data.train_batch_size={len(FAULTS)}",
            f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
            "actor_rollout_ref.actor.optim.lr=1e-3",
            "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=tests.integration.faults.FaultyManager",
            f"video_tools.trainer.max_probs_diff={MAX_PROBS_DIFF}",
            f"video_tools.judge.base_url={judge.base_url}",
            "video_tools.judge.deadline_seconds=5",
            TRAIN_FILES=rows,
            VAL_FILES=rows,
            MODEL_PATH=str(sft_model),
            VVT_TEST_SKIP_WEIGHT_SYNC="1",
            **INSTRUMENTED,
        )
    assert_succeeded(run)
    return run


def _kill_after(judge: JudgeServer, path: Path) -> None:
    while not path.exists():
        time.sleep(0.1)
    judge.kill()


@pytest.fixture(scope="module")
def lines(faulty_run: Run) -> list[dict]:
    return list(read_records(faulty_run.folder / "trajectories"))


def plant(number: int, row: dict) -> None:
    fault = FAULTS[number % len(FAULTS)]
    extra_info, reward_model = row["extra_info"], row["reward_model"]
    extra_info["fault"] = fault
    if fault == "judge":  # which an open question needs; the letter of the right option becomes its text
        row["agent_name"] = "longvt_answering"
        reward_model["ground_truth"] = extra_info["options"]["ABCDEFGH".index(reward_model["ground_truth"])]
        extra_info["question_type"], extra_info["options"] = "open", None
    elif fault == "missing":
        extra_info["video_path"] += ".missing"
    else:
        row["agent_name"] = f"framethinker_{fault}"


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
    # Wrong positions from the first step on, stale weights besides from the first update on.
    for step in range(1, NUM_STEPS + 1):
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
    assert len(missing) == NUM_STEPS * GROUP_SIZE
    for line in missing:
        assert line["trajectory"].stop_reason == "video_error"
        assert line["extra_info"]["video_path"] in line["trajectory"].error
        assert line["num_generated_tokens"] == 0
        assert line["advantage"] == 0.0


def test_what_the_engine_aborts_is_no_turn_of_the_policy(lines: list[dict]) -> None:
    for line in of(lines, "aborted"):
        if line["session_id"] == 0:  # which its siblings do not disturb
            assert line["trajectory"].turns and not line["trajectory"].flags
        else:
            assert line["trajectory"].flags == ["aborted"]
            assert "stop reason 'aborted'" in line["trajectory"].error
            assert line["trajectory"].turns == [] and line["advantage"] == 0.0


def test_a_judge_that_dies_flags_what_it_does_not_judge(faulty_run: Run, lines: list[dict]) -> None:
    judged, unjudged = of(lines, "judge", 1), of(lines, "judge", NUM_STEPS)
    assert len(judged) == len(unjudged) == GROUP_SIZE
    assert all(line["reward"]["judge_calls"] > 0 and not line["trajectory"].flags for line in judged)
    assert all(line["trajectory"].flags == ["judge"] and line["advantage"] == 0.0 for line in unjudged)
    assert "judge/failures" in faulty_run.log
