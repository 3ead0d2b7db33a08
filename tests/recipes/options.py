"""What a recipe hands to verl, and the configuration that verl makes of it.

A stub stands for the interpreter: it notes the command that the recipe would run and stops it there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.types import VideoInfo

RECIPES = Path(__file__).parents[2] / "recipes"
DOCS = RECIPES.parent / "docs"
STOPPED = 77
STUB = f"""#!{sys.executable}
import json, os, runpy, sys
arguments = sys.argv[1:]
programs = ["verl.trainer.main_ppo"]
programs += [f"verl_video_tools.verl_plugin.{{name}}" for name in ("sft_trainer", "platforms.cpu_sft")]
for program in (*programs, "verl_video_tools.dry_run"):
    if program in arguments:
        json.dump(arguments[arguments.index(program) + 1 :], open(os.environ["STUB_OUTPUT"], "w"))
        sys.exit({STOPPED})
if "verl_video_tools.verl_plugin.lost_nodes" in arguments:
    sys.exit("asked for lost nodes")
os.execv({sys.executable!r}, [{sys.executable!r}, *arguments])
"""
SETTINGS = {
    "cpu": {"DEVICE": "cpu"},
    "gpu": {
        "DEVICE": "gpu",
        "TRAIN_FILES": "train.parquet",
        "SFT_FILES": "cold.parquet",
        "NNODES": "2",
        "MM_CACHE_GB": "4",  # else `vvt plan` sizes it, which takes seconds to start; it does where this is ""
    },
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


def recipe_config(recipe: str, setting: str, folder: Path) -> DictConfig:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    arguments = recipe_arguments(recipe, folder, MODEL_PATH=str(folder / "model"), **SETTINGS[setting])
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=arguments)
    for options in (OmegaConf.select(config, "actor_rollout_ref.rollout.custom.video_tools") or {}).values():
        if prompt_file := options.get("prompt_file"):  # which `vvt demo` writes
            Path(prompt_file).parent.mkdir(parents=True, exist_ok=True)
            Path(prompt_file).touch()
    return config


def recipe_arguments(recipe: str, folder: Path, **variables: str) -> list[str]:
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
        cwd=folder,
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
