"""What a recipe only tells of a run that has succeeded changes neither its exit code nor what it leaves; no run goes
on in the folder of another."""

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
ends["verl_video_tools.verl_plugin.platforms.cpu_sft"] = ends["verl.trainer.main_ppo"]
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


# ------------------------------------------------------------------------------------------------ other runs' folders


def started(
    folder: Path, rows: str, recipe: str = "framethinker_grpo", **variables: str
) -> subprocess.CompletedProcess:
    """A run that leaves a checkpoint, with rows in a file of this name."""
    bin_folder = folder / "bin"
    if not bin_folder.exists():
        bin_folder.mkdir()
        for name, text in (("python", STUB), ("vvt", "#!/bin/sh\n")):
            (bin_folder / name).write_text(text)
            (bin_folder / name).chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHON": str(bin_folder / "python")}
    environment |= {"OUTPUT_DIR": str(folder), "DEVICE": "cpu", "TRAINING": "0", "TRAIN_FILES": rows, **variables}
    environment["MODEL_PATH"] = model = str(folder / variables.get("MODEL_PATH", "model"))
    Path(model).mkdir(exist_ok=True)
    (Path(model) / "config.json").write_text("{}")
    command = ["bash", str(RECIPES / f"{recipe}.sh")]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60)
    if not ended.returncode:
        (folder / recipe / "latest_checkpointed_iteration.txt").write_text("2")
    return ended


@pytest.mark.parametrize("recipe", ["framethinker_grpo", "framethinker_sft"])
def test_a_run_goes_on_from_its_own_checkpoints_alone(recipe: str, tmp_path: Path) -> None:
    """Not from those of `make demo`, of a rehearsal's cold start, or of rows that have been made anew."""
    for name in ("one.parquet", "two.parquet"):
        (tmp_path / name).write_text(name)
    kept = tmp_path / recipe / "started_with.txt"
    for _ in range(2):
        assert started(tmp_path, "one.parquet", recipe).returncode == 0
    assert kept.read_text() == f"MODEL_PATH {tmp_path}/model\nTRAIN_FILES one.parquet (11 bytes)\n"

    before = kept.read_text()
    for rows, variables in (
        ("one.parquet", {"MODEL_PATH": "other"}),
        ("two.parquet", {}),
        ("[one.parquet, two.parquet]", {}),
        ("two.parquet", {"DRY_RUN": "1"}),
    ):
        other = started(tmp_path, rows, recipe, **variables)
        assert other.returncode == 2 and "ran " not in other.stdout
        assert "holds checkpoints of a run that was started with" in other.stderr
        assert "Give this one another OUTPUT_DIR" in other.stderr and kept.read_text() == before
    (tmp_path / "one.parquet").write_text("more and better rows")
    assert "(20 bytes)" in started(tmp_path, "one.parquet", recipe).stderr

    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "one.parquet").write_text("one.parquet")
    assert started(tmp_path, "moved/one.parquet", recipe).returncode == 0

    kept.unlink()
    assert started(tmp_path, "[one.parquet, two.parquet]", recipe).returncode == 0
    assert kept.read_text().endswith("TRAIN_FILES one.parquet (20 bytes) two.parquet (11 bytes)\n")


def test_without_checkpoints_a_folder_is_nobodys(tmp_path: Path) -> None:
    for name in ("one.parquet", "two.parquet"):
        (tmp_path / name).write_text(name)
        assert started(tmp_path, name, TRAINING="1").returncode == 1
    assert "two.parquet" in (tmp_path / "framethinker_grpo" / "started_with.txt").read_text()
