"""What every recipe hands to verl: with no preset and with each, on a GPU, on a CPU, and as a smoke test (REHEARSE=1).

    python -m tests.recorded.configurations            # writes data/configurations, a file per recipe
    python -m tests.recorded.configurations --check    # prints each value that differs: recipe, preset, device, key

A file holds, by device and preset, values by key:

    command           that starts the training program; its options are the keys of verl's configuration below
    data              commands that make the rows first
    environment.NAME  variables that the recipe exports, and PATH, which it extends
    refused           instead of all others: how the recipe ends where it has no such run
    any other         of the configuration that verl's program composes of the options, interpolations resolved

Without a preset (`none`) a key stands there if its value differs from that of verl's program without options; with a
preset, if it differs from the one without. `(absent)` is the value of a key that there is no more. An empty mapping has
no key.

Not as given: the run's folder is `FOLDER`, this repository `REPOSITORY`, the caller's PATH `PATH`, a time `TIME`. Real
rows are `train.parquet`, `val.parquet` and `cold.parquet`, and every run finds the model that it starts from.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from tests.recipes.options import (
    RECIPES,
    STOPPED,
    compose_options,
    preset_names,
    recipe_environment,
    run_recipe,
    started,
    verl_config,
)
from tests.recorded.record import DATA

CONFIGURATIONS = DATA / "configurations"
DEVICES = {
    "gpu": {"DEVICE": "gpu", "NODE_RANK": "0", "MASTER_ADDR": "node"},
    "cpu": {"DEVICE": "cpu"},
    "cpu_smoke_test": {"DEVICE": "cpu", "REHEARSE": "1"},
}
FILES = {"TRAIN_FILES": "train.parquet", "VAL_FILES": "val.parquet", "SFT_FILES": "cold.parquet"}
NO_PRESET = "none"
ABSENT = "(absent)"
NOT_THE_RECIPES = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}
"""Variables that a shell sets, and Python where the locale is C."""

Run = tuple[str, str, str]
"""Recipe, device, preset."""
Values = dict[str, Any]


def recipes() -> list[str]:
    """Those that start a training program; other scripts are sourced."""
    return sorted(path.stem for path in RECIPES.glob("*.sh") if path.read_text(encoding="utf-8").startswith("#!"))


def runs_of(recipe: str) -> list[Run]:
    """Those of a device without a preset first. A cold start has no smoke test."""
    devices = list(DEVICES)[: 2 if verl_config(recipe) == "sft_trainer_engine" else 3]
    return [(recipe, device, preset) for device in devices for preset in (NO_PRESET, *preset_names())]


def configuration(run: Run) -> Values:
    """What the recipe hands to verl, by key."""
    recipe, device, preset = run
    variables = DEVICES[device] | ({} if preset == NO_PRESET else {"PRESET": preset})
    if device == "gpu" and recipe != "demo":
        variables |= FILES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for earlier in recipes():  # what the run starts from by default
            model = folder / earlier / "huggingface"
            model.mkdir(parents=True)
            (model / "config.json").write_text("{}")
        ended = run_recipe(recipe, folder, **variables)
        if ended.returncode == STOPPED:
            values = _values(recipe, started(folder), recipe_environment(folder, **variables))
            data = folder / "data.txt"
            values["data"] = data.read_text().splitlines() if data.exists() else []
        else:
            values = {"refused": f"exit code {ended.returncode}: {ended.stderr.strip()}"}
    text = json.dumps(values).replace(str(folder), "FOLDER").replace(str(RECIPES.parent), "REPOSITORY")
    normalised: Values = json.loads(re.sub(r"\d{8}_\d{6}", "TIME", text))
    return normalised


def _values(recipe: str, run: Mapping[str, Any], given: Mapping[str, str]) -> Values:
    exported = {
        name: value for name, value in run["environment"].items() if name not in NOT_THE_RECIPES and name not in given
    }
    exported["PATH"] = run["environment"]["PATH"].replace(given["PATH"], "PATH")
    return {
        "command": " ".join(run["command"]),
        **{f"environment.{name}": value for name, value in exported.items()},
        **_by_key(OmegaConf.to_container(compose_options(verl_config(recipe), run["options"]), resolve=True)),
    }


def _by_key(value: Any, prefix: str = "") -> Values:
    """Of a nested mapping, with a dot between the names of a key; lists stay whole."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        key: inner
        for name, part in value.items()
        for key, inner in _by_key(part, f"{prefix}.{name}" if prefix else name).items()
    }


@cache
def defaults(recipe: str) -> Values:
    """Of verl's program, without options."""
    return _by_key(OmegaConf.to_container(compose_options(verl_config(recipe), ()), resolve=True))


def changes(before: Values, after: Values) -> Values:
    """Values that differ, as in `after`."""
    return {
        key: after.get(key, ABSENT)
        for key in sorted(before.keys() | after.keys())
        if before.get(key, ABSENT) != after.get(key, ABSENT)
    }


def apply(base: Values, changed: Values) -> Values:
    return {key: value for key, value in {**base, **changed}.items() if value != ABSENT}


# ------------------------------------------------------------------------------------------------------------- record


def write(configurations: Mapping[Run, Values]) -> None:
    """The record of all runs, `configurations`."""
    files: dict[str, dict[str, dict[str, Values]]] = {}
    for (recipe, device, preset), values in configurations.items():
        base = defaults(recipe) if preset == NO_PRESET else configurations[recipe, device, NO_PRESET]
        kept = values if "refused" in values else changes(base, values)
        files.setdefault(recipe, {}).setdefault(device, {})[preset] = kept
    CONFIGURATIONS.mkdir(exist_ok=True)
    for path in CONFIGURATIONS.glob("*.json"):
        path.unlink()
    for recipe, kept_of_recipe in files.items():
        text = json.dumps(kept_of_recipe, indent=1, ensure_ascii=False)
        (CONFIGURATIONS / f"{recipe}.json").write_text(f"{text}\n", encoding="utf-8")


def read(recipe: str) -> dict[Run, Values]:
    """All values of each recorded run, those of verl among them."""
    configurations: dict[Run, Values] = {}
    kept = json.loads((CONFIGURATIONS / f"{recipe}.json").read_text(encoding="utf-8"))
    for device, presets in kept.items():
        for preset, changed in presets.items():
            base = defaults(recipe) if preset == NO_PRESET else configurations[recipe, device, NO_PRESET]
            configurations[recipe, device, preset] = changed if "refused" in changed else apply(base, changed)
    return configurations


def differences(before: Mapping[Run, Values], after: Mapping[Run, Values]) -> list[str]:
    """Of two sets of runs: a line for each value that differs, or for a run that only one of them has."""
    lines = []
    for run in {**before, **after}:
        name = ", ".join(run)
        if run not in before or run not in after:
            lines.append(f"{name}: {'is new' if run in after else 'is gone'}")
            continue
        for key in changes(before[run], after[run]):
            was, is_now = (_shown(values.get(key, ABSENT)) for values in (before[run], after[run]))
            lines.append(f"{name}, {key}: was {was}, is {is_now}")
    return lines


def _shown(value: Any) -> str:
    return ABSENT if value == ABSENT else json.dumps(value, ensure_ascii=False)


def main() -> int:
    parser = argparse.ArgumentParser(description="Record what the recipes hand to verl.")
    parser.add_argument("--check", action="store_true", help="compare with the record instead")
    check = parser.parse_args().check
    for recipe in recipes():
        defaults(recipe)  # verl is imported here, once for all processes
    runs = [run for recipe in recipes() for run in runs_of(recipe)]
    with ProcessPoolExecutor() as pool:
        configurations = dict(zip(runs, pool.map(configuration, runs, chunksize=4), strict=True))
    if not check:
        write(configurations)
        num_bytes = sum(path.stat().st_size for path in CONFIGURATIONS.iterdir())
        print(f"{CONFIGURATIONS}: {len(runs)} runs, {num_bytes:,} bytes")
        return 0
    recorded = {
        run: values for path in sorted(CONFIGURATIONS.glob("*.json")) for run, values in read(path.stem).items()
    }
    lines = differences(recorded, configurations)
    print("\n".join(lines) or f"{len(runs)} runs as recorded")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
