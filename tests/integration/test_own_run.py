"""A run of verl's own program from an installed wheel, in a folder that holds nothing else (docs/own-run.md)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import REPO
from tests.integration.leftovers import VARIABLE, kill_processes_of
from verl_video_tools.launch.environment import CPU
from verl_video_tools.records.records import read_records

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A folder with the package as its wheel installs it, with the entry points."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=REPO, check=True)
    (built,) = (tmp_path / "dist").glob("*.whl")
    target = tmp_path / "installed"
    zipfile.ZipFile(built).extractall(target)
    return target


def test_two_steps_in_an_empty_folder(wheel: Path, tmp_path: Path, output_dir: Path, sft_model: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    rows = output_dir / "demo_mixed" / "train.parquet"
    command = [
        *(sys.executable, "-m", "verl.trainer.main_ppo", "+video_tools=mixed_grpo", "+video_tools/machine=cpu_grpo"),
        "+video_tools/correction=bypass",  # no other run takes the engine's log-probabilities for the old policy's
        *(f"data.train_files={rows}", f"data.val_files={rows}", f"actor_rollout_ref.model.path={sft_model}"),
        *("data.train_batch_size=5", "data.shuffle=False", "data.max_prompt_length=1024"),
        *("data.max_response_length=512", "actor_rollout_ref.rollout.n=2"),
        *(f"video_tools.{name}.initial_frames=8" for name in ("videozoomer", "longvt", "videobrain", "framemind")),
        *("video_tools.framemind.low=[8,56]", "video_tools.framemind.high=[4,112]"),
        f"video_tools.retrieval.model={output_dir / 'demo_mixed' / 'clip'}",
        *("trainer.total_training_steps=2", "trainer.default_local_dir=run"),
    ]
    marker = f"own-run-{os.getpid()}"
    environment = {**os.environ, **CPU, "PYTHONPATH": str(wheel), VARIABLE: marker}
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    finally:
        kill_processes_of(marker)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert "actor/pg_loss" in ended.stdout and "rollout_probs_diff_mean" not in ended.stdout
    assert str(wheel) in ended.stdout  # the configuration that verl prints names the wheel's agent loops
    records = [list(read_records(folder / "run" / "trajectories" / f"step_{step:06d}.jsonl")) for step in (1, 2)]
    assert [len(of_step) for of_step in records] == [10, 10]
