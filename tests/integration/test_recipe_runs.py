"""Every recipe, as a user would run it: its own cold start, then two steps; `make test-recipes`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.integration.conftest import INSTRUMENTED, MAX_PROBS_DIFF, REPO, Run, assert_succeeded, run_recipe
from tests.integration.digests import digest
from verl_video_tools.data.synthetic_rows import question_from_row
from verl_video_tools.methods.framemind import resolution_ladder
from verl_video_tools.records.report import LOG_NAMES, read_log, read_training
from verl_video_tools.synthetic.world import label_at

pytestmark = pytest.mark.recipes

RECIPES = {path.stem.removesuffix("_grpo") for path in (REPO / "recipes").glob("*_grpo.sh")}
METHODS = sorted(RECIPES - {"mixed"})
BFLOAT16_PROBS_DIFF = 0.01
"""Mean difference of probabilities that engine and actor may have where both compute in bfloat16."""
HELD_WEIGHTS = "videobrain_held_weights.jsonl"


@pytest.fixture(scope="session")
def grpo_run(output_dir: Path) -> Any:
    """Function: the two steps of a method's GRPO recipe, which makes its own cold start; each is run once."""
    runs: dict[str, Run] = {}

    def run(method: str) -> Run:
        if method not in runs:
            folder = f"recipe_{method}_grpo"
            watched = {"VVT_TEST_HELD_WEIGHTS": str(output_dir / HELD_WEIGHTS), **INSTRUMENTED}
            runs[method] = run_recipe(
                folder,
                f"{method}_grpo",
                output_dir,
                "trainer.total_training_steps=2",
                **(watched if method == "videobrain" else {}),
            )
        assert_succeeded(runs[method])
        return runs[method]

    return run


def records(run: Run) -> list[dict[str, Any]]:
    files = sorted((run.folder / "trajectories").glob("step_*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("method", METHODS)
def test_grpo_recipe_trains_on_executed_calls(method: str, grpo_run: Any, output_dir: Path) -> None:
    run = grpo_run(method)
    assert (output_dir / f"{method}_sft" / "huggingface" / "config.json").exists()
    assert sorted(read_training(run.folder / "trajectories")) == [1, 2]
    assert (run.folder / "huggingface" / "config.json").exists()
    trajectories = [record["trajectory"] for record in records(run)]
    assert {trajectory["method"] for trajectory in trajectories} == {method}
    calls = [call for trajectory in trajectories for turn in trajectory["turns"] for call in turn["calls"]]
    assert sum(call["ok"] and bool(call["frames"]) for call in calls) >= 0.3 * len(trajectories)


@pytest.mark.timeout(2400)
def test_mixed_recipe_trains_all_methods(grpo_run: Any) -> None:
    executed = {
        record["trajectory"]["method"]
        for record in records(grpo_run("mixed"))
        for turn in record["trajectory"]["turns"]
        for call in turn["calls"]
        if call["ok"] and call["frames"]
    }
    assert executed == set(METHODS)


@pytest.mark.timeout(2400)
def test_framemind_shows_every_rung_once_per_group(grpo_run: Any) -> None:
    groups: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for record in records(grpo_run("framemind")):
        frames = record["trajectory"]["initial_frames"]
        groups.setdefault((record["step"], record["uid"]), []).append((len(frames), frames[0]["width"]))
    sides = [round(side / 28) * 28 for _, side in resolution_ladder(8, (8, 56), (4, 112))]
    numbers = [number for number, _ in resolution_ladder(8, (8, 56), (4, 112))]
    assert groups
    for rungs in groups.values():
        assert sorted(rungs) == sorted(zip(numbers, sides, strict=True))


def test_videobrain_finds_what_it_searches_for(grpo_run: Any) -> None:
    """In the recorded rollouts, against the truth about the synthetic videos that their rows hold."""
    shown: list[bool] = []
    for record in records(grpo_run("videobrain")):
        spec, _ = question_from_row(record)
        for turn in record["trajectory"]["turns"]:
            for call in turn["calls"]:
                if call["ok"] and call["name"] == "clip_sample":
                    labels = [label_at(spec, frame["index"]) or "" for frame in call["frames"]]
                    words = str(call["arguments"]["prompt"]).split()
                    if any(set(words) <= set(event.label.split()) for event in spec.events):
                        shown += [set(words) <= set(label.split()) for label in labels]
    assert shown and sum(shown) > 0.9 * len(shown)


TOWER = "visual."


def model_weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: weight for file in folder.glob("*.safetensors") for name, weight in load_file(file).items()}


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("stage", ["fine-tuning", "two GRPO steps"])
def test_videobrain_leaves_the_vision_tower_as_it_is(stage: str, grpo_run: Any, output_dir: Path) -> None:
    """Bit for bit, and moves every other weight."""
    run = grpo_run("videobrain")
    cold_started = output_dir / "videobrain_sft" / "huggingface"
    stages = {
        "fine-tuning": (output_dir / "demo_videobrain" / "base", cold_started),
        "two GRPO steps": (cold_started, run.folder / "huggingface"),
    }
    before, after = (model_weights(folder) for folder in stages[stage])
    assert before.keys() == after.keys()
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {name for name in before if TOWER in name} != set()


@pytest.mark.timeout(2400)
def test_vllm_holds_the_frozen_tower_and_the_weights_that_moved(grpo_run: Any, output_dir: Path) -> None:
    run = grpo_run("videobrain")
    first, *later = map(json.loads, (output_dir / HELD_WEIGHTS).read_text().splitlines())
    assert len(later) == 2, "an update before the first step, and one after each"
    tower = {name for name in first if TOWER in name}
    base = {
        name[name.index(TOWER) :]: digest(weight)
        for name, weight in model_weights(output_dir / "demo_videobrain" / "base").items()
        if TOWER in name
    }
    assert len(tower) > len(base) / 2 and {name: first[name] for name in tower} == {name: base[name] for name in tower}
    for held in later:
        assert {name for name in first if held[name] == first[name]} == tower
    (log,) = run.folder.glob(LOG_NAMES)  # those that vLLM's kernels have repacked show in what they compute
    differences = [values["training/rollout_probs_diff_mean"] for values in read_log(log).values()]
    assert len(differences) == 2 and max(differences) <= MAX_PROBS_DIFF


@pytest.mark.timeout(2400)
def test_longvt_rft_goes_on_from_the_rl_checkpoint(grpo_run: Any, output_dir: Path) -> None:
    reinforced = grpo_run("longvt")
    folder = output_dir / "recipe_longvt_rft"
    run = run_recipe(
        folder.name,
        "longvt_rft",
        output_dir,
        "trainer.total_training_steps=2",
        f"video_tools.rft.records_dir={reinforced.folder / 'trajectories'}",
        MODEL_PATH=str(reinforced.folder / "huggingface"),
    )
    assert_succeeded(run)
    assert (folder / "huggingface" / "config.json").exists()
    started_with = (folder / "started_with.txt").read_text().splitlines()
    assert started_with[0] == f"MODEL_PATH {reinforced.folder / 'huggingface'}"


@pytest.fixture(scope="session")
def smoke_test(grpo_run: Any, output_dir: Path) -> Run:
    """LongVT with a real run's options, and importance sampling, on two ranks; its resumption included."""
    grpo_run("longvt")  # for its cold start
    shutil.rmtree(output_dir / "longvt_smoke_test", ignore_errors=True)
    options = ("--smoke-test", "+video_tools/correction=token_tis")
    run = run_recipe("longvt_smoke_test", "longvt_grpo", output_dir, *options)
    assert_succeeded(run)
    return run


@pytest.mark.timeout(2400)
def test_a_smoke_test_takes_two_steps_and_resumes_for_a_third(smoke_test: Run) -> None:
    first, resumed = (set(read_log(path)) for path in sorted(smoke_test.folder.glob(LOG_NAMES)))
    assert (first, resumed) == ({1, 2}, {3})
    assert sorted(read_training(smoke_test.folder / "trajectories")) == [1, 2, 3]
    for rank in range(2):
        assert (smoke_test.folder / "global_step_3" / "actor" / f"model_world_size_2_rank_{rank}.pt").exists()


@pytest.mark.timeout(2400)
def test_a_smoke_test_packs_over_both_ranks(smoke_test: Run) -> None:
    assert "forward for Ulysses SP input slicing" in smoke_test.log
    assert "DEVICE=cpu: packed sequences, two ranks with Ulysses" in smoke_test.log
    assert "what only a GPU can show: " in smoke_test.log
    steps = [values for path in smoke_test.folder.glob(LOG_NAMES) for values in read_log(path).values()]
    assert all(values["actor/grad_norm"] > 0 for values in steps)
    assert all(0.9 < values["rollout_corr/rollout_is_mean"] < 1.1 for values in steps)


@pytest.mark.timeout(2400)
def test_in_a_smoke_test_engine_and_actor_agree_but_for_rounding(smoke_test: Run) -> None:
    steps = [values for path in smoke_test.folder.glob(LOG_NAMES) for values in read_log(path).values()]
    assert [values["invariant/violations"] for values in steps] == [0, 0, 0]
    gaps = [values["training/rollout_probs_diff_mean"] for values in steps]
    assert len(gaps) == 3 and 0 < max(gaps) <= BFLOAT16_PROBS_DIFF


@pytest.mark.timeout(2400)
def test_a_smoke_test_trains_an_adapter(grpo_run: Any, output_dir: Path) -> None:
    grpo_run("longvt")  # for its cold start
    folder = output_dir / "longvt_adapter_smoke_test"
    shutil.rmtree(folder, ignore_errors=True)
    options = ("--smoke-test", "+video_tools/lora=merged_grpo", "actor_rollout_ref.model.lora_rank=8")
    run = run_recipe(folder.name, "longvt_grpo", output_dir, *options)
    assert_succeeded(run)
    steps = [values for path in folder.glob(LOG_NAMES) for values in read_log(path).values()]
    assert len(steps) == 3 and all(values["actor/grad_norm"] > 0 for values in steps)
    assert max(values["training/rollout_probs_diff_mean"] for values in steps) <= BFLOAT16_PROBS_DIFF
    assert (folder / "huggingface" / "config.json").exists(), "the adapter is merged into a model"


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("method", METHODS)
def test_an_adapter_of_every_method_passes_the_smoke_test(method: str, grpo_run: Any, output_dir: Path) -> None:
    grpo_run(method)  # for its cold start
    folder = output_dir / f"{method}_lora_smoke_test"
    shutil.rmtree(folder, ignore_errors=True)
    micro_batch = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    options = ("--smoke-test", "+video_tools/lora=merged_grpo", micro_batch)
    run = run_recipe(folder.name, f"{method}_grpo", output_dir, *options)
    assert_succeeded(run)
    steps = [values for path in folder.glob(LOG_NAMES) for values in read_log(path).values()]
    assert len(steps) == 3 and all(values["invariant/violations"] == 0 for values in steps)
    assert max(values["actor/grad_norm"] for values in steps) > 0
    assert (folder / "huggingface" / "config.json").exists(), "the adapter is merged into a model"
