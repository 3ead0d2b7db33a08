"""The runs that recipes start, planned in this process; nothing of them is started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import chdir
from functools import cache
from pathlib import Path
from unittest import mock

from omegaconf import DictConfig

from verl_video_tools.core.types import VideoInfo
from verl_video_tools.launch.train import Plan, Request, plan_run
from verl_video_tools.verl_plugin.run_checks import Kind  # imports what sets variables of its own

RECIPES = Path(__file__).parents[2] / "recipes"
DOCS = RECIPES.parent / "docs"
CACHE_GB = "actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb"
CACHED = f"+{CACHE_GB}=4"
"""Spares the plan of the model's images."""
SETTINGS = {
    "cpu": {"DEVICE": "cpu"},
    "gpu": {"DEVICE": "gpu", "TRAIN_FILES": "train.parquet", "VAL_FILES": "val.parquet"},
}
RFT = ("video_tools.rft.records_dir=trajectories", "video_tools.rft.cold_start=[cold.parquet]")
"""What fine-tuning on rollouts needs on real data."""
OF_THE_CALLER = ("PATH", "HOME", "PYTHONPATH")
"""Variables of these tests that a run gets."""

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

Composed = Callable[..., DictConfig]


@cache
def script_arguments(recipe: str) -> tuple[str, ...]:
    """What `recipes/<recipe>.sh` hands to `vvt train`: stage, config groups, options and flags."""
    environment = {"PATH": os.environ["PATH"], "PYTHON": "echo"}
    command = ["bash", str(RECIPES / f"{recipe}.sh")]
    words = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert words[:3] == ["-m", "verl_video_tools.cli", "train"]
    return tuple(words[3:])


def recipe_request(recipe: str, *arguments: str) -> Request:
    """The run of a recipe with these arguments behind it."""
    stage, *words = (*script_arguments(recipe), *arguments)
    assert stage in ("grpo", "sft", "rft")
    flags = {word.lstrip("-").replace("-", "_"): True for word in words if word.startswith("--")}
    overrides = tuple(word for word in words if not word.startswith("--"))
    return Request(stage, overrides, **flags)


def plan_in(folder: Path, request: Request, **variables: str) -> Plan:
    """What the request makes in `folder`, with these variables alone."""
    kept = {name: os.environ[name] for name in OF_THE_CALLER if name in os.environ}
    with chdir(folder), mock.patch.dict(os.environ, {**kept, "OUTPUT_DIR": str(folder), **variables}, clear=True):
        return plan_run(request)


def recipe_plan(recipe: str, folder: Path, *arguments: str, **variables: str) -> Plan:
    """The run of a recipe in `folder`."""
    return plan_in(folder, recipe_request(recipe, *arguments), **variables)


def program_of(recipe: str) -> Kind:
    """The program of verl that the recipe configures."""
    return "grpo" if script_arguments(recipe)[0] == "grpo" else "sft"


def grpo_recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*_grpo.sh"))


def sft_recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*_sft.sh"))
