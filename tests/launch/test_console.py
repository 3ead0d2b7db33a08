"""What `vvt train` prints of a run, with logs as verl writes them, and how a signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="a run configures verl")

from tests.recipes.options import script_arguments
from verl_video_tools.verl_plugin.marked_warnings import MARK

pytestmark = pytest.mark.slow


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    environment |= {"OUTPUT_DIR": str(folder / "outputs"), "DEVICE": "cpu", **variables}
    command = [sys.executable, "-m", "tests.launch.quick_train", "train", *script_arguments("demo"), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2], **pipes)


def run(folder: Path, **variables: str) -> tuple[int, str]:
    process = start(folder, **variables)
    printed, _ = process.communicate(timeout=120)
    return process.returncode, printed


def test_the_demo_prints_few_lines(tmp_path: Path) -> None:
    code, printed = run(tmp_path)
    shown = printed.splitlines()
    assert code == 0
    assert sum(line.startswith("step 20/20  reward 0.500, accuracy 0.250, 21 s") for line in shown) == 1
    assert sum(line.startswith("step 110") for line in shown) == 1
    assert sum("no such video file" in line for line in shown) == 3
    assert not any("target_num_threads" in line for line in shown)
    assert f"{MARK} node 192.0.2.2: 1 x training worker" in shown
    settings = [line.removeprefix(f"{MARK} framethinker_") for line in shown if " TRAIN_FILES=" in line]
    outputs = tmp_path / "outputs"
    rows = f"TRAIN_FILES={outputs}/"
    assert (
        settings[0].startswith("sft: DEVICE=cpu MODEL_PATH=") and f"{rows}framethinker_sft/train.parquet" in settings[0]
    )
    assert settings[1].startswith(f"grpo: DEVICE=cpu MODEL_PATH={outputs}/framethinker_sft/huggingface {rows}")
    assert (outputs / "framethinker_grpo" / "run.log").read_text().count("target_num_threads") == 4000
    assert (outputs / "framethinker_sft" / "run.log").read_text().count("train/loss") == 110


def test_verbose_prints_everything(tmp_path: Path) -> None:
    code, printed = run(tmp_path, VERBOSE="1")
    assert code == 0
    assert printed.count("target_num_threads") == 4000 and printed.count("train/loss") == 110


def test_a_run_that_fails_says_why_and_where_its_log_is(tmp_path: Path) -> None:
    code, printed = run(tmp_path, FAIL="1")
    assert code == 1
    shown = printed.splitlines()
    log = tmp_path / "outputs" / "framethinker_grpo" / "run.log"
    assert shown.index(f"{MARK} failed with exit code 1; the end of {log}:") < shown.index("  ValueError: it failed")


def test_a_signal_ends_the_run_with_its_number(tmp_path: Path) -> None:
    process = start(tmp_path, WAIT="1")
    log = tmp_path / "outputs" / "framethinker_grpo" / "run.log"
    deadline = time.monotonic() + 100
    while not (log.exists() and "step:20 " in log.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended by SIGTERM" in errors
