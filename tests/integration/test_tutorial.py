"""The tutorial, command by command as its pages print them, in two steps of training instead of ten."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.conftest import REPO
from tests.integration.leftovers import VARIABLE, kill_processes_of
from tests.test_docs import code_blocks
from verl_video_tools.records.records import read_records
from verl_video_tools.records.report import LOG_NAMES, read_log

# `long`, since its six runs of the stack repeat what other tests hold; what it adds is that the pages work as printed.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1800)]

PAGES = sorted((REPO / "docs" / "tutorial").glob("*.md"))
RUN_TIMEOUT_SECONDS = 1500
NUM_STEPS, NUM_QUESTIONS, GROUP_SIZE = 2, 8, 8
PAGES_STEPS = "trainer.total_training_steps=10"


@dataclass(frozen=True)
class Tutorial:
    """A finished tutorial.

    Attributes:
        logs: what each page's commands printed, by the page's name.
    """

    folder: Path
    logs: dict[str, str]


@pytest.fixture(scope="module")
def tutorial(output_dir: Path) -> Tutorial:
    """All commands in one shell, in a folder that has what the repository's has."""
    folder = output_dir / "tutorial"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    for name in ("recipes", "examples", "verl_video_tools", "requirements"):
        (folder / name).symlink_to(REPO / name)
    vvt = folder / "bin" / "vvt"
    vvt.write_text(f'#!/bin/sh\nexec {sys.executable} -m verl_video_tools.cli "$@"\n')
    vvt.chmod(0o755)
    script = "set -xeuo pipefail\n"
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = code_blocks(re.sub(r"^## Set up\n.*?(?=^## )", "", text, flags=re.DOTALL | re.MULTILINE), "bash")
        script += f"exec > {page.stem}.log 2>&1\n" + "".join(blocks)
    assert script.count(PAGES_STEPS) == 1
    shorter = f"trainer.total_training_steps={NUM_STEPS} data.train_batch_size={NUM_QUESTIONS}"
    script = script.replace(PAGES_STEPS, shorter)
    marker = f"tutorial-{os.getpid()}-{time.time_ns()}"
    path = os.pathsep.join([str(vvt.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "DEVICE": "cpu", "PYTHON": sys.executable, "PATH": path}
    environment |= {"PYTHONPATH": str(REPO), VARIABLE: marker}
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=RUN_TIMEOUT_SECONDS,
            check=False,
        )
    finally:
        kill_processes_of(marker)
    logs = {page.stem: (folder / f"{page.stem}.log") for page in PAGES}
    read = {name: log.read_text(errors="replace") for name, log in logs.items() if log.exists()}
    assert done.returncode == 0, (
        f"exit code {done.returncode} on page {list(read)[-1]}:\n{list(read.values())[-1][-6000:]}"
    )
    return Tutorial(folder, read)


def test_every_question_of_the_table_becomes_a_row(tutorial: Tutorial) -> None:
    counts = {name: pq.read_table(tutorial.folder / f"{name}.parquet").num_rows for name in ("rows", "train", "test")}
    assert counts == {"rows": 40, "train": 28, "test": 12}


def test_training_asks_the_judge_about_rollouts_that_look(tutorial: Tutorial) -> None:
    run = tutorial.folder / "outputs" / "longvt_grpo"
    (log,) = run.glob(LOG_NAMES)
    steps = read_log(log)
    assert sorted(steps) == list(range(1, NUM_STEPS + 1))
    records = [record for path in sorted((run / "trajectories").glob("step_*.jsonl")) for record in read_records(path)]
    assert len(records) == NUM_STEPS * NUM_QUESTIONS * GROUP_SIZE
    assert sum(record["reward"]["judge_calls"] for record in records) > 0
    calls = [any(call.ok for turn in record["trajectory"].turns for call in turn.calls) for record in records]
    assert sum(calls) > len(records) / 2
    assert (tutorial.folder / "rollouts.html").stat().st_size > 0


@pytest.mark.parametrize("stage", ["sft", "grpo", "rft"])
def test_each_stage_leaves_a_model(tutorial: Tutorial, stage: str) -> None:
    assert (tutorial.folder / "outputs" / f"longvt_{stage}" / "huggingface" / "model.safetensors").is_file()


def test_fine_tuning_on_rollouts_goes_on_from_the_trained_model(tutorial: Tutorial) -> None:
    started_with = (tutorial.folder / "outputs" / "longvt_rft" / "started_with.txt").read_text().splitlines()
    assert started_with[0] == f"MODEL_PATH {tutorial.folder / 'outputs' / 'longvt_grpo' / 'huggingface'}"


@pytest.mark.parametrize("model", ["cold_start", "trained"])
def test_every_question_is_measured_with_an_interval(tutorial: Tutorial, model: str) -> None:
    overall = json.loads((tutorial.folder / "eval" / model / "results.json").read_text())["overall"]
    assert (overall["items"], overall["failed"]) == (12, 0)
    assert model in (tutorial.folder / "eval" / "table.md").read_text()


def test_the_trained_model_is_asked_about_a_video(tutorial: Tutorial) -> None:
    log = tutorial.logs["5-measure"]
    assert re.search(r"^initial frames: 8 frames", log, re.MULTILINE)
    assert re.search(r"^answer: ", log, re.MULTILINE)
