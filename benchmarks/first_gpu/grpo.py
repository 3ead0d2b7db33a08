"""The two GRPO steps: what the recipe gets, and the plan of the same run."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import OmegaConf

from benchmarks.first_gpu.rows import FILE_NAME, INFO
from benchmarks.first_gpu.stages import REPO, Stage
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.plan import (
    GPU,
    ActorMemory,
    Cluster,
    Estimate,
    RunOptions,
    actor_memory,
    estimate_run,
    find_model,
    recipe_config,
    recipe_options,
)
from verl_video_tools.methods import get_method
from verl_video_tools.rollout.cost import estimated_tokens

NUM_STEPS, LORA_RANK, ROLLOUTS = 2, 32, 4


@dataclass(frozen=True)
class GrpoRun:
    """Two steps of a method's recipe with real weights.

    Attributes:
        model: folder with the weights.
        options: `lora_rank` is 0 where weights, gradients and optimiser of all parameters fit on the GPUs.
        plan: of the same run; None if `vvt estimate` does not know this model.
        top_p: part of the probabilities that the method samples from.
    """

    method: str
    model: str
    num_gpus: int
    options: RunOptions
    plan: Estimate | None
    top_p: float = 1.0

    @property
    def lora_rank(self) -> int:
        return self.options.lora_rank

    @property
    def num_rows(self) -> int:
        return NUM_STEPS * self.options.batch_size


def plan_run(method: str, model: str, gpu: GPU, num_gpus: int) -> GrpoRun:
    """Choose what fits: all weights, or else LoRA. The batches are small."""
    recipe = recipe_options(get_method(method))
    ulysses = max(size for size in (1, 2, 4, 8) if size <= recipe.ulysses and num_gpus % size == 0)
    batch_size = max(4, num_gpus)
    options = replace(recipe, batch_size=batch_size, rollouts=ROLLOUTS, ulysses=ulysses, tp=1)
    adapted = replace(options, lora_rank=LORA_RANK)
    top_p = OmegaConf.select(recipe_config(get_method(method)), "actor_rollout_ref.rollout.top_p", default=1.0)
    try:
        shape = find_model(model)
    except UsageError:
        return GrpoRun(method, model, num_gpus, adapted, None, top_p)
    cluster = Cluster(gpu, num_gpus, num_gpus)
    tokens = estimated_tokens(options.envelope(shape.factor))
    whole, lora = (estimate_run(get_method(method), INFO, shape, tokens, each, cluster) for each in (options, adapted))
    plan = whole if whole.actor.total <= gpu.memory_bytes else lora
    return GrpoRun(method, model, num_gpus, plan.options, plan, top_p)


def memory_at(run: GrpoRun, longest_tokens: int) -> ActorMemory:
    """Planned memory of an update whose longest rollout has so many tokens, and calls that fill them.

    Raises:
        ValueError: the run has no plan.
    """
    if run.plan is None:
        raise ValueError("no plan")
    work = run.plan.workload
    calls = max(0, longest_tokens - work.initial_tokens) // max(1, work.call_tokens)
    work = replace(work, max_calls=min(work.max_calls, calls))
    return actor_memory(run.plan.model, run.options, work, run.num_gpus, longest_tokens)


def grpo_stage(run: GrpoRun, folder: Path, limit_seconds: float) -> Stage:
    """The recipe with its real options."""
    rows = str(folder / "rows" / FILE_NAME)
    environment = {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(REPO),
        "VERBOSE": "1",  # a stage's output is its log
        "MODEL_PATH": run.model,
        "OUTPUT_DIR": str(folder),
        "DEVICE": "gpu",
        "TRAIN_FILES": rows,
        "VAL_FILES": rows,
        "NDEVICES_PER_NODE": str(run.num_gpus),
        "NNODES": "1",
    }
    options = [
        f"trainer.default_local_dir={folder / 'grpo'}",
        "trainer.save_freq=-1",
        f"data.train_batch_size={run.options.batch_size}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={run.options.batch_size}",
        f"actor_rollout_ref.rollout.n={run.options.rollouts}",
        # The paper's own may be more GPUs than there are.
        f"actor_rollout_ref.rollout.tensor_model_parallel_size={run.options.tp}",
        f"actor_rollout_ref.actor.ulysses_sequence_parallel_size={run.options.ulysses}",
        f"trainer.total_training_steps={NUM_STEPS}",
    ]
    if run.lora_rank:
        options += ["+video_tools/lora=merged_grpo", f"actor_rollout_ref.model.lora_rank={run.lora_rank}"]
    command = ["bash", str(REPO / "recipes" / f"{run.method}_grpo.sh"), *options]
    return Stage("grpo", command, limit_seconds, environment)
