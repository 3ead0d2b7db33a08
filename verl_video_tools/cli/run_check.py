"""`vvt doctor --run`: a recipe's dry run, by the recipe itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import verl_video_tools
from verl_video_tools.core.check import Check, Status
from verl_video_tools.core.errors import UsageError

_RECIPES = Path(verl_video_tools.__file__).parents[1] / "recipes"
"""Those of a checkout; an installed package has none."""


def find_recipe(name: str) -> Path:
    """The script of a recipe.

    Args:
        name: its path, or its name without `.sh`, looked up in the folder `recipes` here and of the checkout.

    Raises:
        UsageError: there is none; names those that there are.
    """
    if Path(name).is_file():
        return Path(name)
    patterns = [f"*_{kind}.sh" for kind in ("grpo", "sft", "rft")]
    scripts = [
        path for folder in (Path("recipes"), _RECIPES) for kind in patterns for path in sorted(folder.glob(kind))
    ]
    for path in scripts:
        if path.stem == name:
            return path
    names = sorted({path.stem for path in scripts})
    known = f"the recipes are {', '.join(names)}" if names else "they are in a checkout: give the path of one"
    raise UsageError(f"--run {name}: no such file or recipe; {known}")


def dry_run(name: str, options: Sequence[str], as_json: bool) -> int:
    """Run a recipe with --dry-run, in the environment of this process.

    Args:
        options: of verl, as behind the recipe.
        as_json: print the table as one JSON object, and what the recipe itself prints on standard error.

    Returns:
        The recipe's exit code: 0 where nothing has to be fixed.

    Raises:
        UsageError: there is no such recipe.
    """
    command = ["bash", str(find_recipe(name)), "--dry-run", *options]
    if not as_json:
        return subprocess.run(command, check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        environment = {**os.environ, "DRY_RUN_REPORT": str(report)}
        code = subprocess.run(command, env=environment, stdout=sys.stderr.fileno(), check=False).returncode
        text = report.read_text("utf-8") if report.is_file() else _unfinished(name, code)
    print(text.rstrip())
    return code


def _unfinished(name: str, code: int) -> str:
    """The report of a recipe that has ended before its dry run."""
    detail = f"ended with exit code {code} before its options were complete; its message is on standard error"
    check = asdict(Check("recipe", name, Status.FAILED, detail=detail))
    return json.dumps({"version": verl_video_tools.__version__, "ok": False, "checks": [check]}, indent=2)
