"""The conformance run of our loop and of verl's own tool loop: every fault is planted, and seen.

Both train the same tiny model on the same questions of LongVT for three steps. The rows of the first two plant the
faults of loops; in the third, the engine has the second step's weights. `make test-loops` keeps the results, and
writes them into docs/loop-conformance.md.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.integration.conftest import MAX_PROBS_DIFF, REPO, Run, assert_succeeded, run_recipe
from verl_video_tools.cli.main import run as vvt
from verl_video_tools.data.stock_rows import convert_parquet
from verl_video_tools.loop_check.audit import CHECK_NAMES, CLEAN
from verl_video_tools.loop_check.faults import FAULTS
from verl_video_tools.loop_check.plant import NUM_CLEAN, planted
from verl_video_tools.loop_check.records import FOLDER_VARIABLE, STALE_VARIABLE, STALE_WEIGHTS

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]

GROUP_SIZE = 4
BATCH_SIZE = NUM_CLEAN + len(FAULTS)
"""A group of each kind in every step."""
NUM_STEPS, STALE_FROM = 3, 3
FIELDS = {"initial_frames": 8, "call_frames": 32}
"""Of LongVT, as its rows and the synthetic recipe have them."""
OPTIONS = (
    f"trainer.total_training_steps={NUM_STEPS}",
    "trainer.save_freq=1",
    "trainer.max_actor_ckpt_to_keep=null",
    "trainer.checkpoint_callback_class=verl_video_tools.loop_check.callback.TrainedTap",
    "actor_rollout_ref.actor.entropy_coeff=0.01",  # every step moves the weights, whatever the rewards
)
CAUGHT = {
    "missing_image": {"ids_given", "engine_log_probs"},
    "wrong_order": {"images_given"},
    "stale_encoder_cache": {"engine_log_probs"},
    "retokenised_text": {"ids_sampled", "mask"},
    "mask_off_by_one": {"mask"},
    "flat_positions": {"positions", "actor_log_probs"},
    STALE_WEIGHTS: {"engine_log_probs"},
}
"""Checks that must see a fault, whatever the loop."""
SHARE_CAUGHT = {"stale_encoder_cache": 0.5}
"""Of the rollouts with a fault at least, 0.8 where nothing is said. Another image's features change the probabilities
only of what was sampled with an eye on the image: 6 or 7 of 8 rollouts of the tiny model."""


def longvt_rows(output_dir: Path) -> Path:
    """The demo's rows of LongVT."""
    table = pq.read_table(output_dir / "demo_mixed" / "train.parquet")
    path = output_dir / "loop_check_rows.parquet"
    pq.write_table(table.filter(pc.equal(table["agent_name"], "longvt")), path)
    return path


def conformance_run(name: str, rows: Path, output_dir: Path, model: Path, *options: str, **environment: str) -> Run:
    """Also leaves `<name>.json`, what the audit has found."""
    for old in (output_dir / name, output_dir / f"{name}_taps"):  # a kept folder; the run would go on from there
        shutil.rmtree(old, ignore_errors=True)
    path = output_dir / f"{name}.parquet"
    pq.write_table(planted(pq.read_table(rows)), path)
    run = run_recipe(
        name,
        "mixed_grpo",
        output_dir,
        *OPTIONS,
        *options,
        MODEL_PATH=str(model),
        TRAIN_FILES=str(path),
        VAL_FILES=str(path),
        TRAIN_BATCH_SIZE=str(BATCH_SIZE),
        ROLLOUT_N=str(GROUP_SIZE),
        VERL_USE_EXTERNAL_MODULES="verl_video_tools.loop_check.stale_weights",
        **{FOLDER_VARIABLE: str(output_dir / f"{name}_taps"), STALE_VARIABLE: str(STALE_FROM)},
        **environment,
    )
    assert_succeeded(run)
    return run


def audited(name: str, output_dir: Path, model: Path, run: Run) -> tuple[int, Mapping[str, dict[str, Any]]]:
    """The exit code of the audit, and what it says of each fault."""
    found = output_dir / f"{name}.json"
    code = vvt(
        [
            "check-loop",
            str(output_dir / f"{name}_taps"),
            f"--model={model}",
            f"--checkpoints={run.folder}",
            f"--max-probs-diff={MAX_PROBS_DIFF}",
            f"--out={found}",
            "--overwrite",  # of an earlier run in the same folder
        ]
    )
    return code, {fault["fault"]: fault for fault in json.loads(found.read_text())["faults"]}


@pytest.fixture(scope="module")
def our_run(output_dir: Path, sft_model: Path) -> Run:
    return conformance_run(
        "loop_check_ours",
        longvt_rows(output_dir),
        output_dir,
        sft_model,
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=verl_video_tools.loop_check.worker.VideoManager",
        f"++trainer.video_tools.max_probs_diff={MAX_PROBS_DIFF}",
        LEARNING_RATE="1e-3",
    )


@pytest.fixture(scope="module")
def stock_run(output_dir: Path, sft_model: Path) -> Run:
    """verl's trainer, reward manager and worker, as docs/stock-tool-loop.md says."""
    rows = output_dir / "loop_check_stock_rows.parquet"
    prompt = output_dir / "demo_mixed" / "prompts" / "longvt.txt"
    settings = {**FIELDS, "prompt_file": str(prompt)}
    convert_parquet(longvt_rows(output_dir), rows, method_name="longvt", settings=settings)
    tools = output_dir / "loop_check_tools.yaml"
    fields = ", ".join(f"{name}: {value}" for name, value in FIELDS.items())
    tools.write_text(
        f"tools:\n- class_name: verl_video_tools.tools.stock.CropVideoTool\n  config: {{type: native, {fields}}}\n"
    )
    return conformance_run(
        "loop_check_stock",
        rows,
        output_dir,
        sft_model,
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=verl_video_tools.loop_check.worker.StockManager",
        "trainer.v1.trainer_mode=sync",
        "reward.reward_manager.source=register",
        "reward.reward_manager.name=naive",
        "reward.reward_manager.module.path=null",
        f"reward.custom_reward_function.path={REPO}/examples/stock_tool_loop/reward.py",
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tools}",
        "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=4096",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4",
        # A group whose rollouts have failed is left out; a mini-batch of one group then needs no rows of padding, with
        # which verl 0.9.1 fails on images.
        MINI_BATCH_SIZE="1",
        MICRO_BATCH_SIZE=str(GROUP_SIZE),
        LEARNING_RATE="1e-4",
    )


@pytest.fixture(scope="module")
def ours(our_run: Run, output_dir: Path, sft_model: Path) -> Mapping[str, dict[str, Any]]:
    code, found = audited("loop_check_ours", output_dir, sft_model, our_run)
    assert code == 0, found
    return found


@pytest.fixture(scope="module")
def stock(stock_run: Run, output_dir: Path, sft_model: Path) -> Mapping[str, dict[str, Any]]:
    code, found = audited("loop_check_stock", output_dir, sft_model, stock_run)
    assert code == 0, found
    return found


def assert_faults_are_seen(found: Mapping[str, dict[str, Any]]) -> None:
    assert set(found) == {CLEAN, *FAULTS, STALE_WEIGHTS}
    clean = found[CLEAN]
    assert clean["caught"] == 0 and clean["rollouts"] == (STALE_FROM - 1) * NUM_CLEAN * GROUP_SIZE
    assert all(clean["checked"].get(name, 0) > 0.5 * clean["rollouts"] for name in CHECK_NAMES), clean
    for name, checks in CAUGHT.items():
        fault = found[name]
        assert fault["rollouts"] >= 0.5 * (STALE_FROM - 1) * GROUP_SIZE, (name, fault)
        num_seen = fault["rollouts"] - fault["left_out"] - fault["failed"]
        assert fault["caught"] >= SHARE_CAUGHT.get(name, 0.8) * num_seen, (name, fault)
        assert checks <= set(fault["by_check"]), (name, fault)


def test_our_loop(ours: Mapping[str, dict[str, Any]]) -> None:
    """It refuses what it can see itself; what is planted behind it, the audit sees."""
    assert_faults_are_seen(ours)
    placeholder, lost = ours["sampled_placeholder"], ours["lost_rollout"]
    assert placeholder["rollouts"] == placeholder["left_out"] >= GROUP_SIZE
    assert set(placeholder["flags"]) == {"invariant"}
    assert lost["rollouts"] == lost["left_out"] == STALE_FROM - 1


def test_verls_tool_loop(stock: Mapping[str, dict[str, Any]]) -> None:
    """It has no word for a rollout that is lost, and fails on a placeholder that was sampled."""
    assert_faults_are_seen(stock)
    placeholder, lost = stock["sampled_placeholder"], stock["lost_rollout"]
    assert placeholder["rollouts"] == placeholder["failed"] >= GROUP_SIZE
    assert lost["rollouts"] == lost["caught"] == lost["by_check"]["advantages"] == STALE_FROM - 1


def test_our_run_tells_of_what_parts_engine_and_actor(our_run: Run, ours: Mapping[str, dict[str, Any]]) -> None:
    for step in range(1, NUM_STEPS + 1):
        assert f"step {step}: alarm engine_gap: engine and actor differ by" in our_run.log
    apart = [name for name, fault in ours.items() if "rollout_probs_diff" in fault["training"]]
    assert {"stale_encoder_cache", "flat_positions", STALE_WEIGHTS} <= set(apart) and CLEAN not in apart


def test_calls_were_executed(our_run: Run, stock_run: Run, output_dir: Path) -> None:
    """Else no check would have seen an observation."""
    for name in ("loop_check_ours", "loop_check_stock"):
        rows = [
            json.loads(line)
            for path in (output_dir / f"{name}_taps").glob("rows-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        with_observation = [row for row in rows if 0 in row["response_mask"] and len(row["images"]) > 8]
        assert len(with_observation) > 0.1 * len(rows), (name, len(with_observation), len(rows))
