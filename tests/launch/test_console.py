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


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """A folder, and what is printed of the run in it and of a second one that fails; both in one process."""
    folder = tmp_path_factory.mktemp("runs")
    process = start(folder, FAIL_AGAIN="1")
    lines = process.communicate(timeout=120)[0].splitlines()
    assert process.returncode == 1
    end = lines.index("END 0")
    return folder / "outputs", lines[:end], lines[end + 1 :]


def test_the_demo_prints_few_lines(printed: tuple[Path, list[str], list[str]]) -> None:
    outputs, shown, _ = printed
    assert sum(line.startswith("step 20/20  reward 0.500, accuracy 0.250, 21 s") for line in shown) == 1
    assert sum(line.startswith("step 110") for line in shown) == 1
    assert sum("no such video file" in line for line in shown) == 3
    assert not any("target_num_threads" in line for line in shown)
    assert f"{MARK} node 192.0.2.2: 1 x training worker" in shown
    settings = [line.removeprefix(f"{MARK} framethinker_") for line in shown if " TRAIN_FILES=" in line]
    rows = f"TRAIN_FILES={outputs}/"
    assert (
        settings[0].startswith("sft: DEVICE=cpu MODEL_PATH=") and f"{rows}framethinker_sft/train.parquet" in settings[0]
    )
    assert settings[1].startswith(f"grpo: DEVICE=cpu MODEL_PATH={outputs}/framethinker_sft/huggingface {rows}")
    assert (outputs / "framethinker_grpo" / "run.log").read_text().count("target_num_threads") == 2 * 4000
    assert (outputs / "framethinker_sft" / "run.log").read_text().count("train/loss") == 110


def test_a_run_that_fails_says_why_and_where_its_log_is(printed: tuple[Path, list[str], list[str]]) -> None:
    outputs, _, shown = printed
    log = outputs / "framethinker_grpo" / "run.log"
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
