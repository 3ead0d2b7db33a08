"""What a recipe only tells of a run that has succeeded changes neither its exit code nor what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

RECIPES = Path(__file__).parents[2] / "recipes"
STUB = f"""#!{sys.executable}
import os, sys
arguments = sys.argv[1:]
ends = {{"verl.trainer.main_ppo": int(os.environ["TRAINING"]), "verl_video_tools.records.summary": 3}}
ends |= {{"verl_video_tools.records.rehearsal": 4, "verl_video_tools.verl_plugin.export_model": 0}}
for program, code in ends.items():
    if program in arguments:
        print("ran", program)
        sys.exit(code)
os.execv({sys.executable!r}, [{sys.executable!r}, *arguments])
"""
"""An interpreter whose training ends as it is told to, and whose reports fail."""


def run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    stub = folder / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    run_dir = folder / "run"
    run_dir.mkdir()
    if "REHEARSE" not in variables:
        (run_dir / "latest_checkpointed_iteration.txt").write_text("2")
    (folder / "config.json").write_text("{}")
    vvt = folder / "bin" / "vvt"
    vvt.write_text("#!/bin/sh\n")
    vvt.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHON": str(stub), "OUTPUT_DIR": str(folder)}
    environment |= {"DEVICE": "cpu", "RUN_DIR": str(run_dir), "MODEL_PATH": str(folder), "TRAINING": "0", **variables}
    command = ["bash", str(RECIPES / "framethinker_grpo.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_a_table_that_fails_costs_no_model(tmp_path: Path) -> None:
    """The recipe ended there, before it had exported the model."""
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    programs = [line.split(".")[-1] for line in ended.stdout.splitlines() if line.startswith("ran ")]
    assert programs == ["main_ppo", "summary", "export_model"]
    assert "failed with exit code 3, and the run is whole without it: " in ended.stderr
    assert "verl_video_tools.records.summary" in ended.stderr


def test_a_rehearsal_whose_report_fails_has_been_rehearsed(tmp_path: Path) -> None:
    ended = run(tmp_path, REHEARSE="1")
    assert ended.returncode == 0, ended.stderr
    assert "failed with exit code 4, and the run is whole without it: report_rehearsal" in ended.stderr


def test_a_training_that_fails_is_no_success(tmp_path: Path) -> None:
    ended = run(tmp_path, TRAINING="5")
    assert ended.returncode == 5 and "summary" not in ended.stdout
