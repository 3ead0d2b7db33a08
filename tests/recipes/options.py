"""What a recipe hands to verl, and the configuration that verl makes of it.

A stub stands for the interpreter: it notes the command that the recipe would run and stops it there.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.types import VideoInfo

RECIPES = Path(__file__).parents[2] / "recipes"
DOCS = RECIPES.parent / "docs"
STOPPED = 77
STUB = f"""#!{sys.executable} -IS
import json, os, sys
words = sys.argv
programs = ["verl.trainer.main_ppo"]
programs += [f"verl_video_tools.verl_plugin.{{name}}" for name in ("sft_trainer", "platforms.cpu_sft")]
for program in (*programs, "verl_video_tools.dry_run"):
    if program in words:
        end = words.index(program) + 1
        started = {{"command": words[:end], "options": words[end:], "environment": dict(os.environ)}}
        json.dump(started, open(os.environ["STUB_OUTPUT"], "w"))
        sys.exit({STOPPED})
if "verl_video_tools.verl_plugin.lost_nodes" in words:
    sys.exit("asked for lost nodes")
os.execv({sys.executable!r}, [{sys.executable!r}, *words[1:]])
"""
"""Isolated and without `site`, which makes four of five parts of its start-up time."""
SETTINGS = {
    "cpu": {"DEVICE": "cpu"},
    "gpu": {
        "DEVICE": "gpu",
        "TRAIN_FILES": "train.parquet",
        "SFT_FILES": "cold.parquet",
        "NNODES": "2",
        "NODE_RANK": "0",
        "MASTER_ADDR": "node",
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

Composed = Callable[..., DictConfig]


def recipe_config(recipe: str, folder: Path, **variables: str) -> DictConfig:
    """The configuration of a recipe in this environment; its model exists, so that a run needs no cold start."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    given = {"MODEL_PATH": str(folder / "model")} | variables
    config = compose_options(verl_config(recipe), recipe_arguments(recipe, folder, **given))
    for options in (OmegaConf.select(config, "actor_rollout_ref.rollout.custom.video_tools") or {}).values():
        if prompt_file := options.get("prompt_file"):  # which `vvt demo` writes
            Path(prompt_file).parent.mkdir(parents=True, exist_ok=True)
            Path(prompt_file).touch()
    return config


def verl_config(recipe: str) -> str:
    """The configuration of verl that the recipe's options are for."""
    return "sft_trainer_engine" if recipe.endswith(("_sft", "_rft")) else "ppo_trainer"


def compose_options(name: str, overrides: Iterable[str]) -> DictConfig:
    """What Hydra composes of verl's configuration `name` and these options, in a tenth of the time.

    Verl's files are read once. Hydra's own function applies the options, none of which may choose a config group.
    """
    config: DictConfig = pickle.loads(_composed_without_options(name))
    ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(list(overrides)), config)
    return config


@cache
def _composed_without_options(name: str) -> bytes:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return pickle.dumps(compose(name))


def recipe_arguments(recipe: str, folder: Path, **variables: str) -> list[str]:
    """What the recipe hands to verl in this environment, in place of GRPO or of fine-tuning, whichever comes first."""
    ended = run_recipe(recipe, folder, "trainer.total_training_steps=2", **variables)
    assert ended.returncode == STOPPED, ended.stderr
    assert ("asked for lost nodes" in ended.stderr) == ("RAY_ADDRESS" in variables)
    arguments: list[str] = started(folder)["options"]
    return arguments


def run_recipe(recipe: str, folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a recipe up to the first program that trains, where it ends with `STOPPED`."""
    stub = folder / "bin" / "python"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text(STUB)
    stub.chmod(0o755)
    vvt = folder / "bin" / "vvt"  # the data itself is not needed
    vvt.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{folder}/vvt.txt'\necho \"vvt $*\" >> '{folder}/data.txt'\n")
    vvt.chmod(0o755)
    return subprocess.run(
        ["bash", str(RECIPES / f"{recipe}.sh"), *options],
        cwd=folder,
        env=recipe_environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=600,
    )


def recipe_environment(folder: Path, **variables: str) -> dict[str, str]:
    """What `run_recipe` gives a recipe."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(RECIPES.parent),
        "HOME": str(folder),
        "PYTHON": str(folder / "bin" / "python"),
        "OUTPUT_DIR": str(folder),
        "STUB_OUTPUT": str(folder / "started.json"),
        **variables,
    }


def started(folder: Path) -> dict[str, Any]:
    """What `run_recipe` would have started: command up to the program, the program's options, and environment."""
    noted: dict[str, Any] = json.loads((folder / "started.json").read_text())
    return noted


def grpo_recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*_grpo.sh"))


def sft_recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*_sft.sh"))


def preset_names() -> Iterator[str]:
    """As the folder of presets has them."""
    folder = RECIPES / "presets"
    machines = sorted(path.stem for path in (folder / "machines").glob("*.sh"))
    yield from (f"{model.stem}_{machine}" for model in sorted((folder / "models").glob("*.sh")) for machine in machines)
    yield from sorted(path.stem for path in folder.glob("*.sh"))
