"""Every recipe's options compose against the installed verl, and its budgets hold what its method shows."""

from __future__ import annotations

import itertools
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.rollout.cost import max_cost_call

pytest.importorskip("verl", reason="recipes configure verl")
from omegaconf import DictConfig

from tests.method_costs import LABEL_TOKENS
from tests.recipes.options import SETTINGS, TEXT_TOKENS, VIDEOS, Composed, grpo_recipes, program_of, sft_recipes
from verl_video_tools.core.machine import module_exists
from verl_video_tools.core.types import PixelEnvelope, RolloutLimits, Sample, VideoInfo
from verl_video_tools.launch.checks.report import PlannedRun, Status
from verl_video_tools.launch.checks.run import check_sizes
from verl_video_tools.launch.plan import recipe_options, run_options
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.verl_plugin.settings import max_images, method_from_config
from verl_video_tools.video import image_tokens


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", grpo_recipes())
def test_configuration_and_budgets(recipe: str, setting: str, composed: Composed) -> None:
    config = composed(recipe, setting)
    rollout = config.actor_rollout_ref.rollout
    assert config.trainer.v1.trainer_mode == "video_tools"
    assert config.algorithm.adv_estimator == "grpo"  # any other name loses the broadcast over a rollout's sequences
    assert Path(rollout.agent.agent_loop_config_path).is_file()
    assert rollout.max_model_len >= config.data.max_prompt_length + config.data.max_response_length

    budget = RolloutLimits(config.data.max_prompt_length, config.data.max_response_length, max_images(rollout) or 0)
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


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", [*grpo_recipes(), *sft_recipes()])
def test_sizes_can_be_divided(recipe: str, setting: str, composed: Composed) -> None:
    run = PlannedRun(program_of(recipe), composed(recipe, setting), setting, thorough=False)
    assert [check.status for check in check_sizes(run)] == [Status.OK]


def check_budget(method: Any, config: DictConfig, videos: list[VideoInfo], text_tokens: int) -> None:
    """What the method shows of these videos fits the configuration, whatever the model."""
    kwargs = config.data.mm_processor_kwargs
    sample = Sample(question="?", ground_truth="A", video_path="v.mp4", question_type="mc")
    for factor, info in itertools.product((28, 32), videos):  # Qwen2.5-VL, Qwen3-VL
        envelope = PixelEnvelope(factor, kwargs.get("min_pixels", factor**2), kwargs.get("max_pixels", 1 << 20))
        look = method.plan_initial_frames(info, sample, envelope)
        frame_tokens = image_tokens(look.width, look.height, factor) + label_tokens(method)
        assert envelope.min_pixels <= look.width * look.height <= envelope.max_pixels
        call = max_cost_call(method, info, envelope)
        assert call is not None
        call_tokens = image_tokens(call.width, call.height, factor) + label_tokens(method)
        assert len(look) * frame_tokens + text_tokens <= config.data.max_prompt_length
        assert len(call) * call_tokens + text_tokens <= config.data.max_response_length
        assert len(look) + len(call) * (method.max_turns - 1) <= config.video_tools.max_images


def label_tokens(method: Any) -> int:
    """Of a frame's label; a composition's is its file's: `demo` has LongVT's, the others number and time."""
    of_composition = LABEL_TOKENS["longvt"] if getattr(method, "file", None) == "demo" else 24
    return LABEL_TOKENS.get(method.name, of_composition)


@pytest.mark.slow
def test_a_local_run_declares_its_own_ray(composed: Composed) -> None:
    """Without `local`, Ray takes the address that a killed `ray start` left, and refuses to count CPUs."""
    init = composed("framethinker_grpo", "cpu").ray_kwargs.ray_init
    assert (init.address, init.num_cpus, init.num_gpus) == ("local", 32, 1)
    for setting in SETTINGS:
        assert "env_vars" not in composed("framethinker_grpo", setting).ray_kwargs.ray_init.runtime_env


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", grpo_recipes())
def test_entropy_is_computed_in_one_piece(recipe: str, setting: str, composed: Composed) -> None:
    """verl compiles chunks anew for every number of them, until torch gives up: then they take three times the memory
    of its default (benchmarks/entropy.py). In the synthetic world as well: no option is real data's alone."""
    actor = composed(recipe, setting).actor_rollout_ref.actor
    for options in (actor, actor.fsdp_config):
        assert not options.entropy_from_logits_with_chunking and not options.entropy_checkpointing
        assert options.use_torch_compile == (setting == "gpu")


@pytest.mark.slow
def test_agent_loop_workers_are_as_many_as_there_is_work_for(composed: Composed) -> None:
    def num_workers(recipe: str, *options: str) -> int:
        return int(composed(recipe, "gpu", *options).actor_rollout_ref.rollout.agent.num_workers)

    assert num_workers("videozoomer_grpo", "trainer.nnodes=2") == 32
    assert num_workers("longvt_grpo", "trainer.nnodes=8") == 16, "questions of a step"
    for cores, workers in ((4, 2), (96, 32), (960, 128)):
        found = num_workers("videozoomer_grpo", "trainer.nnodes=2", f"video_tools.cores_per_node={cores}")
        assert found == workers


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["framethinker_sft", "framethinker_grpo"])
def test_recipes_run_without_flash_attention(recipe: str, composed: Composed) -> None:
    """`make install` cannot bring it. The engines see to attention; the head's option is in the configuration."""

    def model(setting: str, *arguments: str) -> Any:
        config = composed(recipe, setting, *arguments)
        return config.model if recipe.endswith("_sft") else config.actor_rollout_ref.model

    of_cpu, of_gpu, of_real_rows = model("cpu"), model("gpu", "--synthetic"), model("gpu")
    assert (of_cpu.use_remove_padding, of_cpu.override_config.attn_implementation) == (True, "packed_by_torch")
    assert (of_gpu.use_remove_padding, of_gpu.override_config.attn_implementation) == (False, "sdpa")
    assert of_real_rows.use_remove_padding and "attn_implementation" not in of_real_rows.override_config
    assert of_real_rows.use_fused_kernels == (not module_exists("flash_attn"))
    assert of_real_rows.fused_kernel_options.impl_backend == "torch"


@pytest.mark.slow
def test_an_engine_of_one_device_has_no_second_process_on_a_cpu(composed: Composed) -> None:
    def options(*arguments: str) -> dict[str, Any]:
        return dict(composed("framethinker_grpo", "cpu", *arguments).actor_rollout_ref.rollout.engine_kwargs.vllm)

    assert options()["distributed_executor_backend"] == "uni"
    assert "distributed_executor_backend" not in options("--smoke-test")


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("recipe", grpo_recipes())
def test_the_engine_allows_the_images_of_a_rollout_and_no_video(recipe: str, setting: str, composed: Composed) -> None:
    """Where videos are allowed, vLLM processes one as long as its sequences when it starts."""
    rollout = composed(recipe, setting).actor_rollout_ref.rollout
    assert rollout.get("limit_images") is None, "verl replaces the engine's limits by it"
    assert rollout.engine_kwargs.vllm.limit_mm_per_prompt == {"image": max_images(rollout), "video": 0}


@pytest.mark.slow
def test_a_cold_start_is_cut_for_its_devices(composed: Composed) -> None:
    """Loaders fit into shared memory, and GPUs that are no pairs share no sequence."""

    def num_workers(recipe: str, *options: str) -> int:
        return int(composed(recipe, "gpu", "trainer.nnodes=2", *options).data.num_workers)

    assert num_workers("framethinker_sft") == 8
    assert num_workers("longvt_sft") == 1, "eight rows of up to 176 MB to two devices that share sequences"
    assert num_workers("longvt_sft", "video_tools.loader_shm_gb=64") == 2
    alone = "engine.ulysses_sequence_parallel_size=1"
    assert num_workers("longvt_sft", "video_tools.loader_shm_gb=64", alone) == 5
    assert composed("longvt_sft", "gpu").data.max_token_len_per_gpu == 57_344 // 2
    assert composed("longvt_sft", "gpu", alone).data.max_token_len_per_gpu == 57_344


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sft_recipes())
def test_fine_tuning_saves_on_its_way(recipe: str, composed: Composed) -> None:
    trainer = composed(recipe, "gpu").trainer
    assert trainer.save_freq == {"longvt_sft": 500}.get(recipe, 100)
    assert trainer.max_ckpt_to_keep == 2  # with 1, a kill in the middle of saving loses all


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHOD_NAMES if f"{name}_grpo" in grpo_recipes()])
def test_a_plan_has_the_options_of_the_recipe(method: str, composed: Composed) -> None:
    assert run_options(composed(f"{method}_grpo", "gpu")) == recipe_options(get_method(method))


@pytest.mark.slow
def test_a_plan_reads_the_options_of_the_run(composed: Composed) -> None:
    """Each option that a plan depends on, by verl's name."""
    changed = {
        "data.train_batch_size": 24,
        "actor_rollout_ref.rollout.n": 4,
        "data.max_prompt_length": 1000,
        "data.max_response_length": 2000,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 3,
        "data.mm_processor_kwargs.min_pixels": 784,
        "data.mm_processor_kwargs.max_pixels": 1568,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.3,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 4,
        "actor_rollout_ref.actor.fsdp_config.param_offload": False,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.entropy_coeff": 1.0,
        "++actor_rollout_ref.actor.freeze_vision_tower": True,
        "actor_rollout_ref.model.lora_rank": 8,
        "actor_rollout_ref.model.use_fused_kernels": True,
    }
    config = composed("framethinker_grpo", "gpu", *(f"{key}={value}" for key, value in changed.items()))
    assert list(asdict(run_options(config)).values()) == list(changed.values())
