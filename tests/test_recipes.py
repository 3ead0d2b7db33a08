"""Every recipe's options compose against the installed verl, and its budgets hold what its method shows.

A stub stands for the interpreter: it notes the command that the recipe would run and stops it there.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="recipes configure verl")
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from tests.method_costs import LABEL_TOKENS
from verl_video_tools.core.types import PixelEnvelope, RolloutLimits, Sample, VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.planner.recipes import RECIPES as RECIPES_PLANNED
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.verl_plugin.engine import honour_freeze_vision_tower
from verl_video_tools.verl_plugin.settings import group_methods, method_from_config
from verl_video_tools.video import fit_envelope, image_tokens
from verl_video_tools.video.sampling import linspace_indices

RECIPES = Path(__file__).parents[1] / "recipes"
DOCS = RECIPES.parent / "docs"
STOPPED = 77
STUB = f"""#!{sys.executable}
import json, os, runpy, sys
arguments = sys.argv[1:]
for program in ("verl.trainer.main_ppo", "verl.trainer.sft_trainer", "verl_video_tools.verl_plugin.platforms.cpu_sft"):
    if program in arguments:
        json.dump(arguments[arguments.index(program) + 1 :], open(os.environ["STUB_OUTPUT"], "w"))
        sys.exit({STOPPED})
if "verl_video_tools.verl_plugin.lost_nodes" in arguments:
    sys.exit("asked for lost nodes")
os.execv({sys.executable!r}, [{sys.executable!r}, *arguments])
"""
SETTINGS = {
    "cpu": {"DEVICE": "cpu"},
    "gpu": {"DEVICE": "gpu", "TRAIN_FILES": "train.parquet", "SFT_FILES": "cold.parquet", "NNODES": "2"},
}


VIDEOS = {
    "cpu": [VideoInfo(120.0, 600, 5.0, 56, 56)],
    "gpu": [
        VideoInfo(60.0, 1800, 30.0, 1920, 1080),
        VideoInfo(3600.0, 108_000, 30.0, 1920, 1080),
        VideoInfo(60.0, 1800, 30.0, 1080, 1920),
    ],
}
TEXT_TOKENS = {"cpu": 200, "gpu": 2000}
"""System prompt and question, or a turn and its wrapping."""

Composed = Callable[[str, str], DictConfig]


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Composed:
    """`composed(recipe, setting)`: the configuration that `recipes/<recipe>.sh` hands to verl. Only to be read."""
    return cache(lambda recipe, setting: _composed(recipe, setting, tmp_path_factory.mktemp(recipe)))


def _composed(recipe: str, setting: str, folder: Path) -> DictConfig:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    arguments = _arguments(recipe, folder, MODEL_PATH=str(folder / "model"), **SETTINGS[setting])
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=arguments)
    for options in (OmegaConf.select(config, "actor_rollout_ref.rollout.custom.video_tools") or {}).values():
        if prompt_file := options.get("prompt_file"):  # which `vvt demo` writes
            Path(prompt_file).parent.mkdir(parents=True, exist_ok=True)
            Path(prompt_file).touch()
    return config


def _arguments(recipe: str, folder: Path, **variables: str) -> list[str]:
    """What the recipe hands to verl in this environment, in place of GRPO or of fine-tuning, whichever comes first."""
    stub = folder / "bin" / "python"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text(STUB)
    stub.chmod(0o755)
    vvt = folder / "bin" / "vvt"  # the data itself is not needed
    vvt.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{folder}/vvt.txt'\n")
    vvt.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHON": str(stub),
        "OUTPUT_DIR": str(folder),
        "STUB_OUTPUT": str(folder / "arguments.json"),
        **variables,
    }
    run = subprocess.run(
        ["bash", str(RECIPES / f"{recipe}.sh"), "trainer.total_training_steps=2"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == STOPPED, run.stderr
    assert ("asked for lost nodes" in run.stderr) == ("RAY_ADDRESS" in environment)
    arguments: list[str] = json.loads((folder / "arguments.json").read_text())
    return arguments


def grpo_recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*_grpo.sh"))


def sft_recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*_sft.sh"))


def test_every_script_parses() -> None:
    scripts = sorted(RECIPES.glob("*.sh"))
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", grpo_recipes())
def test_configuration_and_budgets(recipe: str, setting: str, composed: Composed) -> None:
    config = composed(recipe, setting)
    rollout = config.actor_rollout_ref.rollout
    assert config.trainer.v1.trainer_mode == "video_tools"
    assert config.algorithm.adv_estimator == "grpo"  # any other name loses the broadcast over a rollout's sequences
    assert config.trainer.total_training_steps == 2, "options on the command line win"
    assert Path(rollout.agent.agent_loop_config_path).is_file()
    assert rollout.max_model_len >= config.data.max_prompt_length + config.data.max_response_length

    budget = RolloutLimits(config.data.max_prompt_length, config.data.max_response_length, rollout.limit_images)
    if recipe == "mixed_grpo":
        methods = [method_from_config(name, rollout) for name in LABEL_TOKENS]
        largest = RolloutLimits(
            *(max(getattr(method.recipe_budget, field.name) for method in methods) for field in fields(RolloutLimits))
        )
        assert setting == "cpu" or budget == largest
    else:
        methods = [method_from_config(recipe.removesuffix("_grpo"), rollout)]
        assert setting == "cpu" or budget == methods[0].recipe_budget
    for method in methods:
        check_budget(method, config, VIDEOS[setting], TEXT_TOKENS[setting])


def check_budget(method: Any, config: DictConfig, videos: list[VideoInfo], text_tokens: int) -> None:
    """What the method shows of these videos fits the configuration, whatever the model."""
    kwargs, rollout = config.data.mm_processor_kwargs, config.actor_rollout_ref.rollout
    sample = Sample(question="?", ground_truth="A", video_path="v.mp4", question_type="mc")
    for factor, info in itertools.product((28, 32), videos):  # Qwen2.5-VL, Qwen3-VL
        envelope = PixelEnvelope(factor, kwargs.get("min_pixels", factor**2), kwargs.get("max_pixels", 1 << 20))
        look = method.plan_initial_frames(info, sample, envelope)
        frame_tokens = image_tokens(look.width, look.height, factor) + LABEL_TOKENS[method.name]
        assert envelope.min_pixels <= look.width * look.height <= envelope.max_pixels
        call = method.max_cost_call(info, sample, envelope)
        assert call is not None
        call_tokens = image_tokens(call.width, call.height, factor) + LABEL_TOKENS[method.name]
        assert len(look) * frame_tokens + text_tokens <= config.data.max_prompt_length
        assert len(call) * call_tokens + text_tokens <= config.data.max_response_length
        assert len(look) + len(call) * (method.max_turns - 1) <= rollout.limit_images


@pytest.mark.parametrize("recipe", ["framethinker_grpo", "mixed_grpo"])
def test_paths_of_any_characters(recipe: str, tmp_path: Path) -> None:
    odd = tmp_path / "lr=1e-6, (a) [b] it's"
    odd.mkdir()
    (odd / "config.json").write_text("{}")
    arguments = _arguments(recipe, tmp_path, DEVICE="cpu", OUTPUT_DIR=str(odd), MODEL_PATH=str(odd), CDPATH=".:/tmp")
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=arguments)
    assert config.trainer.default_local_dir == str(odd / recipe)
    assert config.actor_rollout_ref.model.path == str(odd)
    assert Path(config.data.train_files).parent.parent == odd
    fields = config.actor_rollout_ref.rollout.custom.video_tools
    assert Path(fields.framethinker.prompt_file).is_relative_to(odd)


def test_lists_of_files_stay_lists(tmp_path: Path) -> None:
    given = _arguments("framethinker_sft", tmp_path, DEVICE="cpu", TRAIN_FILES="[/a.parquet,/b.parquet]")
    assert "data.train_files=[/a.parquet,/b.parquet]" in given


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({}, ["--cold-start={folder}/longvt_sft/train.parquet", "--cold-share=0.94"]),
        ({"SFT_FILES": "/c=d/1.parquet,/e f/2.parquet", "COLD_SHARE": "0.5"},
         ["--cold-start=/c=d/1.parquet", "--cold-start=/e f/2.parquet", "--cold-share=0.5"]),
        ({"COLD_SHARE": "0", "MIN_RL_STEP": "3", "MAX_RL_STEP": "20"}, ["--min-step=3", "--max-step=20"]),
    ],
)  # fmt: skip
def test_rft_mixes_rows_of_the_cold_start(variables: dict[str, str], options: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    arguments = _arguments(
        "longvt_rft", tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path), SFT_DIR="/a=b", MAKE_DEMO="0", **variables
    )
    assert "data.train_files='/a=b/rft.parquet'" in arguments
    words = (tmp_path / "vvt.txt").read_text().splitlines()
    assert words[:2] == ["data", "export-rft"] and words[3] == "/a=b/rft.parquet"
    given = [f"{name}={value}" for name, value in zip(words[4::2], words[5::2], strict=True)]
    assert given == ["--min-iou=0.3", *(option.format(folder=tmp_path) for option in options)]


def test_rft_on_real_data_asks_for_the_cold_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match="SFT_FILES: parquet files of the cold start; or COLD_SHARE=0"):
        _arguments("longvt_rft", tmp_path, DEVICE="gpu", MODEL_PATH=str(tmp_path))


@pytest.mark.parametrize("method", ["framethinker", "mixed"])
def test_a_cold_start_within_a_run_is_that_of_its_own_recipe(method: str, tmp_path: Path) -> None:
    """What a user sets is meant for reinforcement learning: its learning rate would leave the model as it is."""
    meant_for_the_run = {
        **{"TRAIN_FILES": "/rl.parquet", "LEARNING_RATE": "5e-7", "TRAIN_BATCH_SIZE": "4", "MICRO_BATCH_SIZE": "1"},
        **{"TOTAL_EPOCHS": "1", "SAVE_FREQ": "5", "NNODES": "2", "EXPERIMENT_NAME": "mine", "FREEZE_VISION_TOWER": "1"},
    }
    within = _arguments(f"{method}_grpo", tmp_path, DEVICE="cpu", **meant_for_the_run)
    alone = _arguments(f"{method}_sft", tmp_path, DEVICE="cpu")
    assert within == alone[:-1]  # but for the last: our own option, which is the run's


@pytest.mark.parametrize("recipe", sft_recipes())
def test_fine_tuning_saves_on_its_way(recipe: str, tmp_path: Path) -> None:
    arguments = _arguments(recipe, tmp_path, DEVICE="gpu", TRAIN_FILES="/train.parquet", NNODES="1")
    expected = {"longvt_sft": 500}.get(recipe, 100)
    assert f"trainer.save_freq={expected}" in arguments
    if recipe == "longvt_sft":  # its number of steps has to end it, since verl saves the last one by that
        assert "trainer.total_epochs=1000000" in arguments


def test_a_local_run_declares_its_own_ray(composed: Composed) -> None:
    assert composed("framethinker_grpo", "cpu").ray_kwargs.ray_init.num_gpus == 1
    for setting in SETTINGS:
        assert "env_vars" not in composed("framethinker_grpo", setting).ray_kwargs.ray_init.runtime_env


def test_a_cluster_is_joined_with_the_variables_that_workers_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray refuses `num_cpus` of a cluster that exists; workers on other nodes know nothing of the recipe's shell."""
    variables = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "PYTHONPATH": "/plug ins:/it's here",
        "VVT_FRAME_CACHE_BYTES": "1000",
        "VVT_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "VLLM_HOST_IP": "10.0.0.1",
        "UNRELATED": "1",
    }
    monkeypatch.setitem(SETTINGS, "cluster", {**SETTINGS["cpu"], **variables})
    init = _composed("framethinker_grpo", "cluster", tmp_path).ray_kwargs.ray_init
    assert init.num_cpus is None and "num_gpus" not in init and "include_dashboard" not in init
    passed = dict(init.runtime_env.env_vars)
    assert {name: passed.get(name) for name in variables} == {
        **dict.fromkeys(variables),
        "PYTHONPATH": "/plug ins:/it's here",
        "VVT_FRAME_CACHE_BYTES": "1000",
    }
    assert (passed["VERL_PLATFORM"], passed["OMP_NUM_THREADS"], passed["TORCHDYNAMO_DISABLE"]) == ("cpu", "1", "1")
    assert passed["VERL_FILE_LOGGER_PATH"].startswith(str(tmp_path)), "the logger runs in a worker, too"
    assert passed["VERL_DATAPROTO_SERIALIZATION_METHOD"] == "numpy", "sender and receiver have to agree"


LOSS_AGGREGATION = {
    "framethinker_grpo": "token-mean",
    "videozoomer_grpo": "seq-mean-token-mean",
    "longvt_grpo": "seq-mean-token-mean",
    "videobrain_grpo": "token-mean",
    "framemind_grpo": "token-mean",
    "mixed_grpo": "token-mean",
}
"""As published; docs/training.md names the sources."""


@pytest.mark.parametrize("recipe", grpo_recipes())
@pytest.mark.parametrize("setting", SETTINGS)
def test_how_a_recipe_sums_up_its_loss(recipe: str, setting: str, composed: Composed) -> None:
    """The recipe says so itself, and verl's worker reads it."""
    actor = composed(recipe, setting).actor_rollout_ref.actor
    assert actor.loss_agg_mode == LOSS_AGGREGATION[recipe]
    assert f"loss_agg_mode={LOSS_AGGREGATION[recipe]}" in (RECIPES / f"{recipe}.sh").read_text()
    row = next(
        line for line in (DOCS / "training.md").read_text().splitlines() if line.startswith(f"| `recipes/{recipe}.sh`")
    )
    assert f"`{LOSS_AGGREGATION[recipe]}`" in row


FROZEN_TOWER = {"videobrain_grpo", "videobrain_sft", "videozoomer_sft"}
"""Recipes that leave the vision tower as it is; docs/training.md names the sources."""


def engine_config(recipe: str, composed: Composed, folder: Path, **variables: str) -> Any:
    """The configuration of the engine that trains, as verl's workers make it of what the recipe sets."""
    from verl.utils.config import omega_conf_to_dataclass

    if recipe.endswith("_grpo"):
        config = copy.deepcopy(composed(recipe, "gpu")) if not variables else _composed(recipe, "gpu", folder)
        honour_freeze_vision_tower(config)  # as our trainers do before any worker starts
        return omega_conf_to_dataclass(config.actor_rollout_ref.actor).engine
    arguments = _arguments(recipe, folder, DEVICE="gpu", TRAIN_FILES="/train.parquet", NNODES="1", **variables)
    with initialize_config_module("verl.trainer.config", version_base=None):
        return omega_conf_to_dataclass(compose("sft_trainer_engine", overrides=arguments).engine)


@pytest.mark.parametrize("recipe", [*grpo_recipes(), *sft_recipes()])
def test_which_recipes_freeze_the_vision_tower(recipe: str, composed: Composed, tmp_path: Path) -> None:
    from verl_video_tools.verl_plugin.engine.frozen_tower import FrozenTowerConfig

    engine = engine_config(recipe, composed, tmp_path)
    assert engine.strategy == "fsdp2"
    assert isinstance(engine, FrozenTowerConfig) == (recipe in FROZEN_TOWER)


@pytest.mark.parametrize("recipe", ["videobrain_grpo", "videobrain_sft", "longvt_grpo", "longvt_sft"])
def test_one_variable_freezes_the_vision_tower_or_lets_it_train(
    recipe: str, composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl_video_tools.verl_plugin.engine.frozen_tower import FrozenTowerConfig

    variables = {"FREEZE_VISION_TOWER": "0" if recipe in FROZEN_TOWER else "1"}
    monkeypatch.setitem(SETTINGS, "gpu", {**SETTINGS["gpu"], **variables})
    engine = engine_config(recipe, composed, tmp_path, **variables)
    assert isinstance(engine, FrozenTowerConfig) == (recipe not in FROZEN_TOWER)


REHEARSED = {
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    "actor_rollout_ref.actor.fsdp_config.mixed_precision": None,  # verl's default, bfloat16
    "actor_rollout_ref.ref.fsdp_config.mixed_precision": None,
    "actor_rollout_ref.rollout.dtype": "bfloat16",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 2,
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": 2,
    "trainer.n_gpus_per_node": 2,
    "trainer.save_freq": 1,
}
REAL = (
    "actor_rollout_ref.actor.fsdp_config.param_offload",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload",
    "actor_rollout_ref.ref.fsdp_config.param_offload",
    "actor_rollout_ref.rollout.gpu_memory_utilization",
    "actor_rollout_ref.actor.fsdp_config._target_",
)
"""Options that a rehearsal has from the recipe's real run."""
LENGTHS = (
    "data.max_prompt_length",
    "data.max_response_length",
    "data.train_batch_size",
    "data.mm_processor_kwargs",
    "actor_rollout_ref.rollout.max_num_batched_tokens",
    "actor_rollout_ref.rollout.max_model_len",
)
"""Those that it has from the synthetic world."""


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("recipe", grpo_recipes())
def test_a_rehearsal_has_the_options_of_the_real_run_but_its_lengths(
    recipe: str, device: str, composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, synthetic = composed(recipe, "gpu"), composed(recipe, "cpu")
    monkeypatch.setitem(SETTINGS, "rehearsal", {"DEVICE": device, "REHEARSE": "1"})
    rehearsal = _composed(recipe, "rehearsal", tmp_path)
    assert {name: OmegaConf.select(rehearsal, name) for name in REHEARSED} == REHEARSED
    assert {name: OmegaConf.select(rehearsal, name) for name in REAL} == {
        name: OmegaConf.select(real, name) for name in REAL
    }
    assert {name: OmegaConf.select(rehearsal, name) for name in LENGTHS} == {
        name: OmegaConf.select(synthetic, name) for name in LENGTHS
    }
    attention = rehearsal.actor_rollout_ref.model.override_config.get("attn_implementation")
    assert attention == ("packed_by_torch" if device == "cpu" else None)
    assert str(rehearsal.trainer.default_local_dir).startswith(f"{tmp_path}/{recipe.removesuffix('_grpo')}_rehearsal/")


def test_a_rehearsal_does_not_go_on_from_other_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("5")
    with pytest.raises(AssertionError, match="holds checkpoints, from which a rehearsal would resume"):
        _arguments("longvt_grpo", tmp_path, DEVICE="cpu", REHEARSE="1", RUN_DIR=str(tmp_path))


def test_a_mean_per_rollout_is_one_however_the_batch_is_cut() -> None:
    """verl's own sums: micro-batches of one rollout add up to the mean of the rollouts' means."""
    import torch
    from verl.trainer.ppo.core_algos import agg_loss

    lengths = (1, 3, 8)
    loss_BT = torch.arange(24.0).reshape(3, 8)
    mask_BT = torch.stack([torch.arange(8) < length for length in lengths]).float()
    options = {"loss_agg_mode": LOSS_AGGREGATION["longvt_grpo"], "dp_size": 1, "global_batch_size": 3}
    whole = agg_loss(loss_BT, mask_BT, **options)
    alone = sum(agg_loss(loss_BT[i : i + 1], mask_BT[i : i + 1], **options) for i in range(3))
    expected = sum(loss_BT[i, :length].mean() for i, length in enumerate(lengths)) / 3
    torch.testing.assert_close(whole, expected)
    torch.testing.assert_close(alone, expected)


def test_paper_values_of_framethinker(composed: Composed) -> None:
    config = composed("framethinker_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert config.data.train_batch_size == actor.ppo_mini_batch_size == 32
    assert config.actor_rollout_ref.rollout.n == 8
    assert actor.optim.lr == 5e-7
    assert actor.use_kl_loss is False and config.algorithm.use_kl_in_reward is False
    assert actor.clip_ratio_low == actor.clip_ratio_high == 0.2 and actor.loss_agg_mode == "token-mean"
    assert config.algorithm.norm_adv_by_std_in_grpo is True
    assert config.trainer.nnodes == 2 and config.trainer.n_gpus_per_node == 8


def test_paper_values_of_videozoomer(composed: Composed) -> None:
    config = composed("videozoomer_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size, config.actor_rollout_ref.rollout.n) == (
        128,
        32,
        16,
    )
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.loss_agg_mode) == (0.2, 0.27, "seq-mean-token-mean")
    assert (actor.optim.lr, actor.entropy_coeff) == (1e-6, 0.001)
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert config.algorithm.filter_groups.enable is True
    assert config.data.mm_processor_kwargs == {"min_pixels": 25_088, "max_pixels": 100_352}


async def test_dynamic_sampling_of_videozoomer(composed: Composed, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's own filter drops groups whose rollouts all earn the same, on rewards as our manager returns them."""
    import torch
    from verl.trainer.ppo.v1 import replay_buffer
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from verl_video_tools.core.types import StopReason, Trajectory, Turn

    method = get_method("videozoomer")
    sample = Sample(question="?", ground_truth="B", video_path="v.mp4", question_type="mc")
    video = VideoInfo(9.0, 90, 10.0, 64, 36)
    flagged = method.zero_reward()["score"]

    async def rewards(*answers: str) -> list[float]:
        turns = [[Turn(f"<answer>{text}</answer>", answer=text, well_formed=True)] for text in answers]
        rollouts = [
            Trajectory("videozoomer", "?", video, turns=turn, stop_reason=StopReason.ANSWER, answer=turn[-1].answer)
            for turn in turns
        ]
        return [(await method.score(rollout, sample))["score"] for rollout in rollouts]

    groups = {
        "right": await rewards("B", "B", "B"),
        "wrong": await rewards("A", "C", "D"),
        "mixed": await rewards("A", "B", "B"),
        "flagged": [flagged] * 3,  # as after a judge's failure on every rollout
        "partly": [*(await rewards("B", "A")), flagged],
    }
    scores = {f"{uid}_{i}_0": score for uid, group in groups.items() for i, score in enumerate(group)}

    def kv_batch_get(keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        assert select_fields == ["rm_scores"]
        return {"rm_scores": [torch.tensor([0.0, scores[key]]) for key in keys]}

    config = composed("videozoomer_grpo", "cpu")
    monkeypatch.setattr(replay_buffer.tq, "kv_batch_get", kv_batch_get)
    metric = PPOTrainer._resolve_filter_groups_metric(SimpleNamespace(config=config))
    buffer = SimpleNamespace(
        filter_groups_metric=metric,
        finished_keys={"train": set(groups)},
        partitions={"train": dict.fromkeys(scores)},
        _dapo_classification_cache={"train": {}},
    )
    dropped, _ = ReplayBuffer._dapo_filtered_keys(buffer, "train")
    assert dropped == {"right", "wrong", "flagged"}


def test_paper_values_of_longvt(composed: Composed) -> None:
    config = composed("longvt_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size) == (16, 8)
    assert config.actor_rollout_ref.rollout.n == 16
    assert actor.optim.lr == 1e-6
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert config.algorithm.use_kl_in_reward is False and actor.entropy_coeff == 0
    assert config.trainer.total_epochs == 5 and actor.ulysses_sequence_parallel_size == 4


def test_paper_values_of_framemind(composed: Composed) -> None:
    config = composed("framemind_grpo", "gpu")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (actor.ppo_mini_batch_size, rollout.n, rollout.tensor_model_parallel_size) == (64, 8, 4)
    assert (actor.optim.lr, actor.optim.weight_decay, actor.grad_clip) == (1e-6, 0.01, 1.0)
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert config.algorithm.norm_adv_by_std_in_grpo is False
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.3, 3.0)
    assert (rollout.temperature, rollout.top_p, rollout.max_model_len) == (0.7, 0.9, 32_768)
    validation = rollout.val_kwargs
    assert (validation.temperature, validation.top_p, validation.n, validation.do_sample) == (0.01, 0.95, 1, True)
    assert config.data.mm_processor_kwargs == {"min_pixels": 50_176, "max_pixels": 200_704}


@pytest.mark.parametrize(("setting", "factor"), [("cpu", 28), ("gpu", 28), ("gpu", 32)])
def test_the_dearest_rung_of_framemind_fits(setting: str, factor: int, composed: Composed) -> None:
    config = composed("framemind_grpo", setting)
    rollout, kwargs = config.actor_rollout_ref.rollout, config.data.mm_processor_kwargs
    method = method_from_config("framemind", rollout)
    assert method.low != method.high
    group = group_methods(method, rollout, validate=False)
    assert [member.rung for member in group] == list(range(1, 9))
    envelope = PixelEnvelope(factor, kwargs.get("min_pixels", 28 * 28), kwargs.get("max_pixels", 1 << 20))
    sample = Sample(question="?", ground_truth="A", video_path="v.mp4", question_type="mc")

    def fits(frames: int, width: int, height: int, budget: int) -> bool:
        tokens = image_tokens(width, height, factor) + LABEL_TOKENS["framemind"]
        return frames * tokens + TEXT_TOKENS[setting] <= budget

    for member in group:
        look = member.plan_initial_frames(VIDEOS[setting][-1], sample, envelope)
        assert fits(len(look), look.width, look.height, config.data.max_prompt_length)
    width, height = fit_envelope(method.tool_side_pixels, method.tool_side_pixels, envelope)
    assert fits(2 * method.call_frames, width, height, config.data.max_response_length)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", ["framemind_grpo", "mixed_grpo"])
def test_every_rung_of_framemind_spreads_its_frames_evenly(recipe: str, setting: str, composed: Composed) -> None:
    """The paper's uniform ladder (4.1), as in evaluation; nested times are left to those who ask for them."""
    rollout = composed(recipe, setting).actor_rollout_ref.rollout
    method = method_from_config("framemind", rollout)
    assert method.nested_times is get_method("framemind").nested_times is False
    info = VIDEOS["gpu"][0]
    sample = Sample(question="?", ground_truth="A", video_path="v.mp4", question_type="mc")
    for member in group_methods(method, rollout, validate=False):
        indices = member.plan_initial_frames(info, sample, PixelEnvelope(28, 784, 1 << 20)).indices
        assert indices == linspace_indices(0, info.num_frames - 1, member.own_rung()[0])


def test_baseline_of_framemind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "baseline", {**SETTINGS["gpu"], "BASELINE": "1"})
    config = _composed("framemind_grpo", "baseline", tmp_path)
    method = method_from_config("framemind", config.actor_rollout_ref.rollout)
    assert (method.low, method.high) == ((32, 448), (32, 448))
    assert config.trainer.experiment_name == "framemind_fixed32_grpo"


def test_paper_values_of_videobrain(composed: Composed) -> None:
    config = composed("videobrain_grpo", "gpu")
    actor = config.actor_rollout_ref.actor
    assert config.data.train_batch_size == actor.ppo_mini_batch_size == 32
    assert config.actor_rollout_ref.rollout.n == 8
    assert actor.optim.lr == 1e-6 and actor.freeze_vision_tower is True
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.001, "low_var_kl")
    assert actor.entropy_coeff == 0.001 and config.algorithm.use_kl_in_reward is False
    assert config.trainer.total_epochs == 1 and config.trainer.save_freq == 10
    options = config.actor_rollout_ref.rollout.custom.video_tools
    assert options.retrieval.model == "google/siglip2-base-patch16-224"
    assert options.retrieval.num_threads == 16, "ours"


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", grpo_recipes())
def test_entropy_is_computed_in_one_piece(recipe: str, setting: str, composed: Composed) -> None:
    """verl compiles chunks anew for every number of them, until torch gives up: then they take three times the memory
    of its default (benchmarks/entropy.py). In the synthetic world as well: no option is real data's alone."""
    actor = composed(recipe, setting).actor_rollout_ref.actor
    for options in (actor, actor.fsdp_config):
        assert not options.entropy_from_logits_with_chunking and not options.entropy_checkpointing
        assert options.use_torch_compile == (setting == "gpu")


CORRECTIONS = {
    "off": "disabled",
    "token_tis": "decoupled_token_is",
    "sequence_tis": "decoupled_seq_is",
    "mis": "decoupled_seq_is_rs",
}
"""`ROLLOUT_CORRECTION`, and verl's preset of it."""


@pytest.mark.parametrize(
    ("recipe", "correction"),
    [
        *((recipe, "mis") for recipe in grpo_recipes()),
        *(("longvt_grpo", name) for name in CORRECTIONS if name != "mis"),
    ],
)
def test_every_recipe_corrects_for_the_engine_on_request(
    recipe: str, correction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.trainer.config.algorithm import RolloutCorrectionConfig
    from verl.utils.config import omega_conf_to_dataclass

    variables = {} if correction == "off" else {"ROLLOUT_CORRECTION": correction}
    monkeypatch.setitem(SETTINGS, correction, {"DEVICE": "cpu", **variables})
    options = _composed(recipe, correction, tmp_path).algorithm.rollout_correction
    found = omega_conf_to_dataclass(options, RolloutCorrectionConfig)
    assert found == getattr(RolloutCorrectionConfig, CORRECTIONS[correction])()


def test_an_unknown_correction_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match="must be off, token_tis, sequence_tis or mis, got 'tis'"):
        _arguments("longvt_grpo", tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path), ROLLOUT_CORRECTION="tis")


LORA = {"LORA_RANK": "32", "LORA_ALPHA": "64", "LORA_SYNC": "adapter"}


@pytest.mark.parametrize("recipe", grpo_recipes())
def test_every_recipe_trains_an_adapter_of_the_language_model_on_request(
    recipe: str, composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert composed(recipe, "cpu").actor_rollout_ref.model.lora_rank == 0
    monkeypatch.setitem(SETTINGS, "lora", {"DEVICE": "cpu", **LORA})
    model = _composed(recipe, "lora", tmp_path).actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, model.lora.merge) == (32, 64, False)
    assert model.target_modules == "all-linear" and model.exclude_modules == ".*visual.*"


def test_an_unknown_way_to_send_an_adapter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match="LORA_SYNC must be merged or adapter, got 'both'"):
        _arguments("longvt_grpo", tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path), LORA_SYNC="both")


def test_agent_loop_workers_are_as_many_as_there_is_work_for(
    composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def num_workers(recipe: str, setting: str, **environment: str) -> int:
        monkeypatch.setitem(SETTINGS, setting, {**SETTINGS["gpu"], **environment})
        return int(composed(recipe, setting).actor_rollout_ref.rollout.agent.num_workers)

    assert num_workers("videozoomer_grpo", "two nodes", NNODES="2") == 32
    assert num_workers("longvt_grpo", "eight nodes", NNODES="8") == 16, "questions of a step"
    assert num_workers("longvt_grpo", "own", AGENT_WORKERS="40") == 40


def test_loaders_of_a_cold_start_fit_into_shared_memory(tmp_path: Path) -> None:
    def num_workers(recipe: str, **environment: str) -> int:
        variables = {**SETTINGS["gpu"], "NODE_RANK": "0", "MASTER_ADDR": "node", "MODEL_PATH": str(tmp_path)}
        given = dict(argument.split("=", 1) for argument in _arguments(recipe, tmp_path, **variables, **environment))
        workers, batch_size = int(given["data.num_workers"]), int(given["data.train_batch_size"])
        bytes_per_worker = 8 * 2 * batch_size // 16 * int(given["data.max_length"]) * 3072
        gigabytes = float(environment.get("LOADER_GB", 16))
        assert workers == 1 or "NUM_WORKERS" in environment or workers * bytes_per_worker <= gigabytes * 1e9
        return workers

    # Two nodes of eight devices, two batches ready for each worker.
    assert num_workers("framethinker_sft") == 8
    assert num_workers("longvt_sft") == 1, "four rows of up to 176 MB to a device"
    assert num_workers("longvt_sft", LOADER_GB="64") == 5
    assert num_workers("longvt_sft", NUM_WORKERS="3", LOADER_GB="64") == 3


def test_the_synthetic_world_needs_no_flash_attention_on_a_gpu_either(
    composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo` is to run after `make install`, which cannot bring it."""
    monkeypatch.setitem(SETTINGS, "demo", {"DEVICE": "gpu", "SYNTHETIC": "1"})
    model = composed("framethinker_grpo", "demo").actor_rollout_ref.model
    assert (model.use_remove_padding, model.override_config.attn_implementation) == (False, "sdpa")
    model = composed("framethinker_grpo", "gpu").actor_rollout_ref.model
    assert model.use_remove_padding and "attn_implementation" not in model.override_config


@pytest.mark.parametrize("method", sorted(RECIPES_PLANNED))
def test_the_planner_knows_the_options_of_the_recipe(method: str, composed: Composed) -> None:
    config, planned = composed(f"{method}_grpo", "gpu"), RECIPES_PLANNED[method]
    actor, rollout, kwargs = (
        config.actor_rollout_ref.actor,
        config.actor_rollout_ref.rollout,
        config.data.mm_processor_kwargs,
    )
    assert planned == RunOptions(
        batch_size=config.data.train_batch_size,
        mini_batch_size=actor.ppo_mini_batch_size,
        rollouts=rollout.n,
        prompt_length=config.data.max_prompt_length,
        response_length=config.data.max_response_length,
        micro_batch_size=actor.ppo_micro_batch_size_per_gpu,
        min_pixels=kwargs.min_pixels,
        max_pixels=kwargs.max_pixels,
        utilization=rollout.gpu_memory_utilization,
        tp=rollout.tensor_model_parallel_size,
        ulysses=actor.ulysses_sequence_parallel_size,
        offload=actor.fsdp_config.optimizer_offload,
        reference=actor.use_kl_loss,
        ref_offload=config.actor_rollout_ref.ref.fsdp_config.param_offload,
        entropy=actor.entropy_coeff > 0,
        freeze_vision=actor.freeze_vision_tower,
    )


def test_the_processor_cache_holds_the_rollouts_under_way(
    composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cache_gb(recipe: str, folder: str, **environment: str) -> str:
        (tmp_path / folder).mkdir()
        variables = {**SETTINGS["gpu"], "MODEL_PATH": "Qwen/Qwen2.5-VL-7B-Instruct", **environment}
        name = "+actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb="
        found = [text for text in _arguments(recipe, tmp_path / folder, **variables) if text.startswith(name)]
        return found[0].removeprefix(name)

    assert int(cache_gb("videozoomer_grpo", "planned", NNODES="1")) > int(cache_gb("videozoomer_grpo", "two")) > 4
    assert int(cache_gb("mixed_grpo", "mixed")) >= 4
    assert cache_gb("longvt_grpo", "own", MM_CACHE_GB="7") == "7"
    assert cache_gb("longvt_grpo", "unknown", MODEL_PATH="nobody/no-model") == "4", "vLLM's default"
