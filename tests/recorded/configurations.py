"""What every recipe makes of verl's configuration: on a GPU, on a CPU, as a smoke test, and on a small machine.

    python -m tests.recorded.configurations            # writes data/configurations, a file per recipe
    python -m tests.recorded.configurations --check    # prints each value that differs: recipe, device, machine, key

A file holds, by device and machine, values by key:

    command           the training program; its options are the keys of verl's configuration below
    data              commands that make the rows first
    environment.NAME  variables that the run sets, and PATH, which it extends
    any other         of the configuration, interpolations resolved

On the usual machine (`none`) a key stands there if its value differs from that of verl's program without options; on
another, if it differs from the usual one. `(absent)` is the value of a key that there is no more. An empty mapping has
no key. Copies of the node `video_tools` in other sections are left out.

Not as given: the run's folder is `FOLDER`, this repository `REPOSITORY`, the caller's PATH `PATH`, the interpreter
`PYTHON` in the folder `PROGRAMS`, a time `TIME`. Real rows are `train.parquet`, `val.parquet` and `cold.parquet`, and
every run finds the model that it starts from.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from omegaconf import DictConfig, OmegaConf

from tests.recipes.options import OF_THE_CALLER, RECIPES, RFT, SETTINGS, program_of, recipe_plan
from tests.recorded.record import DATA
from verl_video_tools import config
from verl_video_tools.launch import data
from verl_video_tools.launch.train import Plan, _make_rows, _program
from verl_video_tools.verl_plugin.run_checks import compose_run

CONFIGURATIONS = DATA / "configurations"
MACHINES = Path(config.__file__).parent / "video_tools" / "machine"
DEVICES = ("gpu", "cpu", "cpu_smoke_test")
USUAL = "none"
SMALL = "4x48gb_lora"
WITHOUT_SMALL = {"demo", "mixed_grpo", "mixed_sft"}
"""Recipes with lengths that no GPU of 48 GB holds, and the demo."""
ABSENT = "(absent)"

Run = tuple[str, str, str]
"""Recipe, device, machine."""
Values = dict[str, Any]


def recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.sh"))


def runs_of(recipe: str) -> list[Run]:
    """Those on the usual machine of a device first. A cold start has no smoke test, nor has the demo."""
    devices = DEVICES if recipe.endswith("_grpo") else DEVICES[:2]
    small = [] if recipe in WITHOUT_SMALL else [("gpu", SMALL)]
    runs = [(recipe, device, machine) for device, machine in (*((device, USUAL) for device in devices), *small)]
    return sorted(runs, key=lambda run: DEVICES.index(run[1]))


def configuration(run: Run) -> Values:
    """The run's values, by key."""
    recipe, device, machine = run
    variables = {"DEVICE": "gpu" if device == "gpu" else "cpu"}
    arguments = ["--smoke-test"] if device == "cpu_smoke_test" else []
    if device == "gpu" and recipe != "demo":
        variables |= SETTINGS["gpu"] if not recipe.endswith("_rft") else {}
        arguments += RFT if recipe.endswith("_rft") else ()
        arguments += [f"+video_tools/machine={_small_machine(recipe)}"] if machine == SMALL else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for earlier in recipes():  # what the run starts from by default
            model = folder / earlier / "huggingface"
            model.mkdir(parents=True)
            (model / "config.json").write_text("{}")
        plan = recipe_plan(recipe, folder, *arguments, **variables)
        values = _values(plan, variables)
    text = json.dumps(values)
    labels = {sys.executable: "PYTHON", Path(sys.executable).parent: "PROGRAMS", folder: "FOLDER"}
    for path, label in (labels | {RECIPES.parent: "REPOSITORY"}).items():
        text = text.replace(str(path), label)
    normalised: Values = json.loads(re.sub(r"\d{8}_\d{6}", "TIME", text))
    return normalised


def _small_machine(recipe: str) -> str:
    method, stage = recipe.split("_")
    program = "grpo" if stage == "grpo" else "sft"
    own = f"{SMALL}_{method}_{program}"
    return own if (MACHINES / f"{own}.yaml").exists() else f"{SMALL}_{program}"


def _values(plan: Plan, variables: Mapping[str, str]) -> Values:
    given = {*OF_THE_CALLER, "OUTPUT_DIR", *variables}
    exported = {name: value for name, value in plan.environment.items() if name not in given}
    exported["PATH"] = plan.environment["PATH"].replace(os.environ["PATH"], "PATH")
    return {
        "command": " ".join(_program(plan)),
        "data": _data_commands(plan),
        **{f"environment.{name}": value for name, value in exported.items()},
        **by_key(plan.config),
    }


def _data_commands(plan: Plan) -> list[str]:
    commands: list[str] = []
    with mock.patch.object(data, "_vvt", lambda *arguments: commands.append(" ".join(arguments))):
        if plan.is_synthetic:
            data.make_demo(plan.config)
        _make_rows(plan)
    return commands


def by_key(config: DictConfig) -> Values:
    """All values, with a dot between the names of a key; lists stay whole."""
    values = _by_key(OmegaConf.to_container(config, resolve=True))
    return {key: value for key, value in values.items() if ".video_tools." not in key}


def _by_key(value: Any, prefix: str = "") -> Values:
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
    return by_key(compose_run(program_of(recipe), ()))


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
    for (recipe, device, machine), values in configurations.items():
        base = defaults(recipe) if machine == USUAL else configurations[recipe, device, USUAL]
        files.setdefault(recipe, {}).setdefault(device, {})[machine] = changes(base, values)
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
    for device, machines in kept.items():
        for machine, changed in machines.items():
            base = defaults(recipe) if machine == USUAL else configurations[recipe, device, USUAL]
            configurations[recipe, device, machine] = apply(base, changed)
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
    parser = argparse.ArgumentParser(description="Record what the recipes make of verl's configuration.")
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
