"""Every recipe's options compose against the installed verl, and its budgets hold what its method shows."""

from __future__ import annotations

import copy
import itertools
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="recipes configure verl")
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from tests.method_costs import LABEL_TOKENS
from tests.recipes.options import (
    DOCS,
    RECIPES,
    SETTINGS,
    Composed,
    grpo_recipes,
    recipe_arguments,
    recipe_config,
    sft_recipes,
)
from verl_video_tools.core.types import PixelEnvelope, RolloutLimits, Sample, VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.planner.host_memory import agent_workers
from verl_video_tools.planner.recipes import RECIPES as RECIPES_PLANNED
from verl_video_tools.planner.recipes import RunOptions
from verl_video_tools.verl_plugin.engine import honour_freeze_vision_tower
from verl_video_tools.verl_plugin.settings import group_methods, method_from_config
from verl_video_tools.video import fit_envelope, image_tokens
from verl_video_tools.video.sampling import linspace_indices

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
        frame_tokens = image_tokens(look.width, look.height, factor) + label_tokens(method)
        assert envelope.min_pixels <= look.width * look.height <= envelope.max_pixels
        call = method.max_cost_call(info, sample, envelope)
        assert call is not None
        call_tokens = image_tokens(call.width, call.height, factor) + label_tokens(method)
        assert len(look) * frame_tokens + text_tokens <= config.data.max_prompt_length
        assert len(call) * call_tokens + text_tokens <= config.data.max_response_length
        assert len(look) + len(call) * (method.max_turns - 1) <= rollout.limit_images


def label_tokens(method: Any) -> int:
    """Of a frame's label; a composition's is its file's: `demo` has LongVT's, the others number and time."""
    of_composition = LABEL_TOKENS["longvt"] if getattr(method, "file", None) == "demo" else 24
    return LABEL_TOKENS.get(method.name, of_composition)


def test_a_local_run_declares_its_own_ray(composed: Composed) -> None:
    assert composed("framethinker_grpo", "cpu").ray_kwargs.ray_init.num_gpus == 1
    for setting in SETTINGS:
        assert "env_vars" not in composed("framethinker_grpo", setting).ray_kwargs.ray_init.runtime_env


LOSS_AGGREGATION = {
    "framethinker_grpo": "token-mean",
    "videozoomer_grpo": "seq-mean-token-mean",
    "longvt_grpo": "seq-mean-token-mean",
    "videobrain_grpo": "token-mean",
    "framemind_grpo": "token-mean",
    "compose_grpo": "token-mean",
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
        config = copy.deepcopy(composed(recipe, "gpu")) if not variables else recipe_config(recipe, "gpu", folder)
        honour_freeze_vision_tower(config)  # as our trainers do before any worker starts
        return omega_conf_to_dataclass(config.actor_rollout_ref.actor).engine
    arguments = recipe_arguments(recipe, folder, DEVICE="gpu", TRAIN_FILES="/train.parquet", NNODES="1", **variables)
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
    rehearsal = recipe_config(recipe, "rehearsal", tmp_path)
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
    assert config.trainer.total_epochs == 5 and actor.ulysses_sequence_parallel_size == 2


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
    config = recipe_config("framemind_grpo", "baseline", tmp_path)
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


def test_agent_loop_workers_are_as_many_as_there_is_work_for(
    composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def num_workers(recipe: str, setting: str, **environment: str) -> int:
        monkeypatch.setitem(SETTINGS, setting, {**SETTINGS["gpu"], **environment})
        return int(composed(recipe, setting).actor_rollout_ref.rollout.agent.num_workers)

    assert num_workers("videozoomer_grpo", "two nodes", NNODES="2") == 32
    assert num_workers("longvt_grpo", "eight nodes", NNODES="8") == 16, "questions of a step"
    for cores in (4, 24, 960):
        found = num_workers("videozoomer_grpo", f"{cores} cores", NNODES="2", CORES_PER_NODE=str(cores))
        assert found == agent_workers(128, nodes=2, cores_per_node=cores)
    assert num_workers("longvt_grpo", "own", AGENT_WORKERS="40") == 40


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
