"""`vvt report`: what it writes, and bad usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recorded_run import rollout, write_run
from verl_video_tools.cli.main import run


def recorded(folder: Path) -> Path:
    steps = {step: [rollout("a", float(step), accuracy=1.0), rollout("a", 0.0)] for step in (1, 2)}
    return write_run(folder, steps, log={1: {"actor/grad_norm": 2.0}})


@pytest.mark.slow
@pytest.mark.parametrize("given", [".", "trajectories"])
def test_a_report_stands_in_the_run(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(tmp_path / "grpo")
    assert run(["report", str(folder / given)]) == 0
    printed = capsys.readouterr().out
    assert "| reward | 0.500 | 1.000 |" in printed and f"{folder}/report/curves.png" in printed
    (read,) = json.loads((folder / "report" / "curves.json").read_text())["runs"]
    assert read["name"] == "grpo" and read["log"]["metrics"] == {"actor/grad_norm": [2.0]}
    assert "## grpo" in (folder / "report" / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "names"), [([], ["one/grpo", "two/grpo"]), (["--name", "recall", "--name", "IoU"], ["recall", "IoU"])]
)
def test_runs_side_by_side(options: list[str], names: list[str], tmp_path: Path) -> None:
    one, two = (recorded(tmp_path / name / "grpo") for name in ("one", "two"))
    assert run(["report", str(one / "trajectories"), str(two), "--out", str(tmp_path / "both"), *options]) == 0
    read = json.loads((tmp_path / "both" / "curves.json").read_text())["runs"]
    assert [one["name"] for one in read] == names


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["{folder}"], "no recorded step; give a run's folder"),
        (["{folder}/grpo", "--name", "a", "--name", "b"], "--name is given 2 times for 1 runs"),
        (["{folder}/grpo", "{folder}/grpo"], "two runs have the same name (grpo, grpo)"),
        (["{folder}/grpo", "--out", "{folder}/grpo/metrics.jsonl"], "cannot write"),
        ([], "RUN..."),
    ],
)
def test_bad_usage_is_one_line(
    options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "grpo")
    assert run(["report", *(option.format(folder=tmp_path) for option in options)]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
