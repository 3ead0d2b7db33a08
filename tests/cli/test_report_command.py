"""`vvt report`: what it writes, and bad usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recorded_run import rollout, write_run
from tests.viewer_page import Page
from verl_video_tools.cli.main import run


def recorded(folder: Path) -> Path:
    steps = {step: [rollout("a", float(step), accuracy=1.0), rollout("a", 0.0)] for step in (1, 2)}
    return write_run(folder, steps, log={1: {"actor/grad_norm": 2.0}})


@pytest.mark.slow
def test_a_report_stands_in_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(tmp_path / "grpo")
    assert run(["report", str(folder)]) == 0
    assert f"{folder}/report/report.html: 0." in capsys.readouterr().out
    (read,) = json.loads((folder / "report" / "curves.json").read_text())["runs"]
    assert read["name"] == "grpo" and read["log"]["metrics"] == {"actor/grad_norm": [2.0]}
    assert (folder / "report" / "curves.png").stat().st_size > 10_000
    index = Page((folder / "report" / "rollouts.html").read_text()).blocks["index"]
    assert [rollout["step"] for rollout in index["rollouts"]] == [2, 2]
    assert "rollouts.html" in Page((folder / "report" / "report.html").read_text()).having("href")


@pytest.mark.slow
def test_runs_side_by_side(tmp_path: Path) -> None:
    log = tmp_path / "elsewhere.jsonl"
    log.write_text('{"step": 1, "data": {"actor/grad_norm": 7}}\n')
    one, two = (recorded(tmp_path / name) for name in ("one", "two"))
    runs = [str(one / "trajectories"), str(two)]
    options = ["--out", str(tmp_path / "both"), "--no-thumbnails", "--max-rollouts", "1"]
    options += ["--name", "recall", "--name", "IoU", "--log", str(log), "--log", f"{two}/metrics.jsonl"]
    assert run(["report", *runs, *options]) == 0
    read = json.loads((tmp_path / "both" / "curves.json").read_text())["runs"]
    assert [one["name"] for one in read] == ["recall", "IoU"]
    assert [one["log"]["metrics"]["actor/grad_norm"] for one in read] == [[7.0], [2.0]]
    index = Page((tmp_path / "both" / "rollouts_2.html").read_text()).blocks["index"]
    assert len(index["rollouts"]) == index["num_left_out"] == 1


@pytest.mark.slow
def test_the_rollouts_to_look_at_are_the_trained_methods(tmp_path: Path) -> None:
    """What is only measured finishes last, and would fill the page. The run is given as its records."""
    methods = ["longvt"] * 8 + ["direct"] * 8
    validation = [rollout(f"{number}", 1.0, method=method) for number, method in enumerate(methods)]
    for number, line in enumerate(validation):
        line["extra_info"]["index"] = number % 8
    folder = write_run(tmp_path / "r", {1: [rollout("a", 1.0)]}, {1: validation})
    assert run(["report", str(folder / "trajectories"), "--max-rollouts", "4"]) == 0
    assert not (folder / "trajectories" / "report").exists()
    blocks = Page((folder / "report" / "rollouts.html").read_text()).blocks
    assert [rollout["method"] for rollout in blocks["index"]["rollouts"]] == ["longvt"] * 4
    assert [blocks[f"rollout-{number}"]["row"]["extra_info"]["index"] for number in range(4)] == [0, 2, 4, 7]
    assert blocks["index"]["num_left_out"] == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["{folder}"], "no recorded step; give a run's folder"),
        (["{folder}/grpo", "--name", "a", "--name", "b"], "--name is given 2 times for 1 runs"),
        (["{folder}/grpo", "{folder}/grpo"], "given twice"),
        (["{folder}/grpo", "{folder}/grpo", "--name", "a", "--name", "a"], "two runs have the same name (a, a)"),
        (["{folder}/grpo", "--log", "{folder}/none"], "cannot be read"),
        (["{folder}/grpo", "--out", "{folder}/grpo/metrics.jsonl"], "cannot be made"),
        ([], "RUN..."),
    ],
)
def test_bad_usage_is_one_line(
    options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "grpo")
    assert run(["report", *(option.format(folder=tmp_path) for option in options)]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
