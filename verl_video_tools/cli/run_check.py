"""`vvt doctor --run`: the dry run of a config group, by `vvt train` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import verl_video_tools
from verl_video_tools.core.check import Check, Status
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.train import Stage


def dry_run(name: str, options: Sequence[str], as_json: bool) -> int:
    """Run `vvt train ... --dry-run`.

    Args:
        name: of the group, such as `longvt_grpo`.
        options: more groups, and options of verl.
        as_json: print the table as one JSON object, and what else is printed on standard error.

    Returns:
        The exit code: 0 where nothing has to be fixed.

    Raises:
        UsageError: the name has no stage.
    """
    stage = name.rpartition("_")[2]
    if stage not in get_args(Stage):
        raise UsageError(f"--run {name}: give a method and a stage, such as longvt_grpo")
    train = ["train", stage, f"+video_tools={name}", "--dry-run", *options]
    command = [sys.executable, "-m", "verl_video_tools.cli", *train]
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
    """The report of a run whose options make none."""
    detail = f"ended with exit code {code} before its options were complete; its message is on standard error"
    check = asdict(Check("configuration", name, Status.FAILED, detail=detail))
    return json.dumps({"version": verl_video_tools.__version__, "ok": False, "checks": [check]}, indent=2)
