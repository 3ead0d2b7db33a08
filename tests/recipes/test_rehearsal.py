"""REHEARSE=1: what a rehearsal has of the real run, and what of the synthetic world."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")
from omegaconf import OmegaConf

from tests.recipes.options import RECIPES, Composed, grpo_recipes, recipe_config

REHEARSED = {
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    "actor_rollout_ref.actor.fsdp_config.mixed_precision": None,  # verl's default, bfloat16
    "actor_rollout_ref.ref.fsdp_config.mixed_precision": None,
    "actor_rollout_ref.ref.fsdp_config.model_dtype": "bf16",
    "actor_rollout_ref.rollout.dtype": "bfloat16",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 2,
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": 2,
    "trainer.n_gpus_per_node": 2,
    "trainer.save_freq": 1,
}
REAL = (
    "actor_rollout_ref.actor.fsdp_config.param_offload",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload",
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


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "device"), [*zip(grpo_recipes(), itertools.cycle(["cpu", "gpu"]))])
def test_a_rehearsal_has_the_options_of_the_real_run_but_its_lengths(
    recipe: str, device: str, composed: Composed, tmp_path: Path
) -> None:
    real, synthetic = composed(recipe, "gpu"), composed(recipe, "cpu")
    rehearsal = recipe_config(recipe, tmp_path, DEVICE=device, REHEARSE="1")
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


STUB = f"""#!{sys.executable}
import json, os, sys
arguments = sys.argv[1:]
if "verl.trainer.main_ppo" in arguments and "verl_video_tools.verl_plugin.supervise" not in arguments:
    with open(os.path.join(os.environ["OUTPUT_DIR"], "parts.jsonl"), "a") as parts:
        print(json.dumps(arguments), file=parts)
elif "verl_video_tools.verl_plugin.supervise" in arguments:
    os.execv({sys.executable!r}, [{sys.executable!r}, *arguments])
"""
"""In the place of the interpreter: both parts of a rehearsal succeed."""


@pytest.mark.parametrize("address", [{}, {"RAY_ADDRESS": "10.0.0.1:6379"}])
def test_parts_of_a_rehearsal_have_metrics_of_their_own(address: dict[str, str], tmp_path: Path) -> None:
    """verl's logger empties its file; on a cluster it runs in a worker, which is told its name by an option."""
    for program, text in {"python": STUB, "vvt": "#!/bin/sh\n"}.items():
        (tmp_path / program).write_text(text)
        (tmp_path / program).chmod(0o755)
    (tmp_path / "config.json").write_text("{}")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(RECIPES.parent), "PYTHON": str(tmp_path / "python")}
    environment |= {
        "OUTPUT_DIR": str(tmp_path),
        "MODEL_PATH": str(tmp_path),
        "DEVICE": "cpu",
        "REHEARSE": "1",
        **address,
    }
    subprocess.run(
        ["bash", str(RECIPES / "framethinker_grpo.sh")], env=environment, check=True, capture_output=True, timeout=60
    )
    parts = [json.loads(line) for line in (tmp_path / "parts.jsonl").read_text().splitlines()]
    assert len(parts) == 2 and "trainer.total_training_steps=3" in parts[1]
    name = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH="
    files = [word.removeprefix(name) for part in parts for word in part if word.startswith(name)]
    assert len(set(files)) == (2 if address else 0)
