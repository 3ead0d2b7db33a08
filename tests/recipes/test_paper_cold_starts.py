"""Every constant of the cold starts, and of LongVT's fine-tuning after RL, as their recipes hand it to verl on GPUs.

Each value stands beside its source: the paper, its published script, or "ours" where neither has one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="recipes configure verl")
from omegaconf import OmegaConf

from tests.recipes.options import RECIPES, Composed
from verl_video_tools.verl_plugin.fsdp_engine import FrozenTowerConfig

pytestmark = pytest.mark.slow

TRAINED_TOWER = "verl.workers.config.FSDPEngineConfig"
FROZEN_TOWER = f"{FrozenTowerConfig.__module__}.{FrozenTowerConfig.__qualname__}"
ALL_WEIGHTS = {"model.lora_rank": 0}

COMMON: dict[str, Any] = {
    # LongVT's table 6 names AdamW; the other papers name no optimiser. No paper gives betas or a gradient clip for its
    # cold start: these are the defaults of verl, and of transformers' trainer, on which LLaMA-Factory builds.
    "optim.optimizer": "AdamW",
    "optim.betas": [0.9, 0.999],
    "optim.clip_grad": 1.0,
    # FrameThinker A ("Additional Training Details") and VideoZoomer table 5. LongVT's table 6 has 300 of 3,000 steps in
    # SFT and 160 of 1,600 in RFT. Ours for VideoBrain and FrameMind.
    "optim.lr_scheduler_type": "cosine",
    "optim.lr_warmup_steps_ratio": 0.1,
    "optim.lr_warmup_steps": -1,  # verl takes a number above 0 instead of the ratio
    # Half a period, down to zero: the cosine of transformers.
    "optim.num_cycles": 0.5,
    "optim.min_lr_ratio": 0.0,
    # The configurations of VideoZoomer and LongVT say bf16, which means arithmetic on float32 weights.
    "engine.model_dtype": "fp32",
    "engine.dtype": "bfloat16",
    "data.truncation": "error",  # ours: LLaMA-Factory cuts a row that is too long, LMMs-Engine leaves it out
}

LONGVT: dict[str, Any] = {  # table 6 where nothing else is named; "configuration": the published one for LMMs-Engine
    "optim.lr": 5e-5,
    "optim.weight_decay": 0,
    "data.train_batch_size": 64,  # ours, in rows; the paper packs 51,200 tokens on each of 32 or 64 GPUs (12, "SFT")
    "data.max_length": 57_344,  # ours: the frames' times need more than 51,200
    "data.use_dynamic_bsz": True,
    "data.mm_processor_kwargs": {"min_pixels": 784, "max_pixels": 50_176},  # configuration
    **ALL_WEIGHTS,  # configuration
    "engine._target_": TRAINED_TOWER,  # neither paper nor configuration freezes anything
}

CONSTANTS: dict[str, dict[str, Any]] = {
    "framethinker_sft": {  # A, "Additional Training Details", where nothing else is named
        "model.path": "Qwen/Qwen2.5-VL-7B-Instruct",  # 4.2
        "optim.lr": 1e-4,
        "optim.weight_decay": 0.01,  # ours: verl's default
        "data.train_batch_size": 32,  # one row and 4 accumulation steps on each of 8 GPUs
        "trainer.total_epochs": 3,  # ours
        "trainer.total_training_steps": None,
        "data.max_length": 16_384,  # ours: prompt and response of the published RL script together
        "data.mm_processor_kwargs": {"min_pixels": 3136, "max_pixels": 235_200},  # ours: the frame sizes of the RL code
        "model.lora_rank": 8,
        "model.lora_alpha": 16,  # ours
        "model.target_modules": "all-linear",  # ours
        "model.exclude_modules": ".*visual.*",  # ours
        "engine._target_": TRAINED_TOWER,  # the adapter leaves the tower alone
    },
    "videozoomer_sft": {  # table 5 where nothing else is named; "script": scripts/sft.yaml, for LLaMA-Factory
        "model.path": "Qwen/Qwen2.5-VL-7B-Instruct",  # script
        "optim.lr": 5e-6,  # 4.1 and script; table 5 has 5e-5
        "optim.weight_decay": 0,  # LLaMA-Factory's default, since the script names none
        "data.train_batch_size": 64,  # script: 16
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": None,
        "data.max_length": 32_768,  # script: cutoff_len
        "data.mm_processor_kwargs": {"min_pixels": 25_088, "max_pixels": 100_352},  # script; the minimum is RL's
        **ALL_WEIGHTS,  # script: full
        "engine._target_": FROZEN_TOWER,
    },
    "longvt_sft": LONGVT
    | {
        "model.path": "Qwen/Qwen2.5-VL-7B-Instruct",  # 12, "SFT"
        "trainer.total_epochs": 3,  # ours: the paper trains on a stream
        "trainer.total_training_steps": 3000,
        "trainer.save_freq": 500,  # configuration
    },
    "longvt_rft": LONGVT
    | {
        "trainer.total_epochs": 7,  # ours: the paper trains on a stream
        "trainer.total_training_steps": 1600,
        "trainer.save_freq": 400,  # configuration
    },
    "videobrain_sft": {  # ours where nothing else is named: the paper and its code are silent
        "model.path": "Qwen/Qwen3-VL-8B-Instruct",  # 4.1
        "optim.lr": 1e-5,
        "optim.weight_decay": 0.01,
        "data.train_batch_size": 32,
        "trainer.total_epochs": 1,  # 4.1
        "trainer.total_training_steps": None,
        "data.max_length": 24_576,  # prompt and response of the published RL script together
        "data.mm_processor_kwargs": {"min_pixels": 4096, "max_pixels": 235_200},
        **ALL_WEIGHTS,
        "engine._target_": FROZEN_TOWER,  # as in the published RL script
    },
    "framemind_sft": {  # ours, all of it: the paper trains without a cold start
        "model.path": "Qwen/Qwen2.5-VL-7B-Instruct",
        "optim.lr": 1e-5,
        "optim.weight_decay": 0.01,
        "data.train_batch_size": 64,
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": None,
        "data.max_length": 28_672,
        "data.mm_processor_kwargs": {"min_pixels": 50_176, "max_pixels": 200_704},
        **ALL_WEIGHTS,
        "engine._target_": TRAINED_TOWER,
    },
}


@pytest.mark.parametrize("recipe", CONSTANTS)
def test_constants_of_fine_tuning(recipe: str, composed: Composed) -> None:
    config, expected = composed(recipe, "gpu"), COMMON | CONSTANTS[recipe]
    assert {key: OmegaConf.select(config, key) for key in expected} == expected


def test_rft_starts_from_the_checkpoint_of_rl(composed: Composed) -> None:
    """Section 12, "RFT"."""
    path = Path(composed("longvt_rft", "gpu").model.path)
    assert path.parts[-2:] == ("longvt_grpo", "huggingface")


@pytest.mark.parametrize(("recipe", "steps"), [("longvt_sft", 300), ("longvt_rft", 160)])
def test_warm_up_of_longvt_in_steps(recipe: str, steps: int, composed: Composed) -> None:
    """Table 6 gives steps and no ratio; verl rounds down."""
    config = composed(recipe, "gpu")
    assert int(config.optim.lr_warmup_steps_ratio * config.trainer.total_training_steps) == steps


def test_every_fine_tuning_of_a_paper_is_here() -> None:
    recipes = {path.stem for stage in ("sft", "rft") for path in RECIPES.glob(f"*_{stage}.sh")}
    assert recipes - CONSTANTS.keys() == {"mixed_sft", "compose_sft"}
