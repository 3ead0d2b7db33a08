"""The first hour on a GPU with stand-in commands: limits, the page, figures against the plan."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.first_gpu import __main__ as first_gpu
from benchmarks.first_gpu import figures, grpo, rows
from benchmarks.first_gpu.machine import Machine, describe
from benchmarks.first_gpu.stages import Stage, run_stage
from benchmarks.video.long_files import LongVideo
from tests.waiting import is_gone, wait_until
from verl_video_tools.data.validate import validate_file
from verl_video_tools.launch.plan import find_gpu

GiB = 2**30
MACHINE = Machine(("NVIDIA H100 80GB HBM3",), 79 * GiB, {"driver": "580.1"})
STEP = {
    "training/rollout_probs_diff_mean": 0.004,
    "training/rollout_probs_diff_max": 0.3,
    "actor/perf/max_memory_allocated_gb": 40.0,
    "actor/perf/max_memory_reserved_gb": 44.0,
    "prompt_length/mean": 4000.0,
    "prompt_length/max": 4100,
    "response_length/mean": 2000.0,
    "response_length/max": 3000,
    "frames/total/mean": 30.0,
    "timing_s/gen": 60.0,
    "timing_s/old_log_prob": 5.0,
    "timing_s/update_actor": 20.0,
    "timing_s/update_weights": 12.0,
    "timing_s/step": 99.0,
}
LEAVES_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("child", child.pid, flush=True)
time.sleep(600)
"""
WRITES_A_LOG = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1]); folder.mkdir()
lines = [{"step": step, "data": json.loads(sys.argv[2])} for step in (1, 2)]
(folder / "metrics_1.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
"""


def python(name: str, program: str, *arguments: str, limit_seconds: float = 60) -> Stage:
    return Stage(name, [sys.executable, "-c", program, *arguments], limit_seconds)


@pytest.fixture
def run() -> grpo.GrpoRun:
    return grpo.plan_run("framethinker", "qwen2.5-vl-7b", find_gpu("h100"), 1)


@pytest.mark.slow
def test_a_failing_step_is_told_and_the_next_goes_on(tmp_path: Path, run: grpo.GrpoRun) -> None:
    check = {"name": "flash-attn", "status": "warning", "detail": "is not installed", "fix": "uv pip install"}
    stages = [
        python("doctor", f"print({json.dumps({'checks': [check]})!r})"),
        python("tests", "print('5 passed, 1 failed'); raise SystemExit(3)"),
        python("rows", LEAVES_A_CHILD, limit_seconds=2),
        Stage("lost", ["/no/such/program"], 5),
        python("actor", "print('a warning'); print('| head | 1.5 |')"),
        python("grpo", WRITES_A_LOG, str(tmp_path / "grpo"), json.dumps(STEP)),
    ]
    assert not first_gpu.go(MACHINE, run, stages, tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "3 of 6 steps ended well" in text
    assert "| doctor | ok |" in text and "| tests | failed, exit code 3 |" in text
    assert "| rows | out of time |" in text and "| lost | failed |" in text and "| grpo | ok |" in text
    assert "| flash-attn | warning | is not installed | uv pip install |" in text
    assert "## Parts of the actor, against the plan\n\n| head | 1.5 |\n\n" in text
    assert "## End of tests.log" in text and "5 passed, 1 failed" in text and "580.1" in text
    assert "| training/rollout_probs_diff_mean | 0.004 probability |  |  | within 0.02 |" in text
    child = int((tmp_path / "rows.log").read_text().split()[1])
    wait_until(lambda: is_gone(child), "the end of a step's child, which is out of time", 10)


def test_a_step_gets_its_environment_and_ends_well(tmp_path: Path) -> None:
    stage = replace(python("one", "import os; print(os.environ['MODEL_PATH'])"), environment={"MODEL_PATH": "/m"})
    outcome = run_stage(stage, tmp_path)
    assert (outcome.status, outcome.exit_code, outcome.output) == ("ok", 0, "/m\n")


def test_figures_stand_beside_their_plan(tmp_path: Path, run: grpo.GrpoRun) -> None:
    lines = [{"step": 1, "data": STEP | {"training/rollout_probs_diff_mean": 0.5}}, {"step": 2, "data": STEP}]
    (tmp_path / "metrics_1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {figure.name: figure for figure in figures.read_figures(run, tmp_path, 60 * GiB)}
    assert found["steps"].measured == 2
    gap = found["training/rollout_probs_diff_mean"]
    assert gap.measured == 0.5 and gap.judgement == "BEYOND 0.02"  # of the first step
    assert (found["update"].measured, found["update"].planned) == (20.0, None)
    memory = found["peak of the actor, reserved"]
    assert memory.measured == pytest.approx(44 * GiB / 1e9)
    assert memory.planned == pytest.approx((grpo.memory_at(run, 7100).total - 3 * GiB) / 1e9)
    assert found["peak of a GPU, all processes"].measured == pytest.approx(60 * GiB / 1e9)
    assert found["tokens of a rollout, mean"].measured == 6000


@pytest.mark.parametrize(
    ("measured", "verdict"), [(50.0, "below the plan"), (90.0, "near the plan"), (140.0, "above the plan")]
)
def test_verdicts(measured: float, verdict: str) -> None:
    assert figures.Figure("", "s", measured, 100.0).judgement == verdict


def test_a_gap_that_was_not_measured_is_not_within_its_bound() -> None:
    missing, *_ = figures.gap_figures({1: {}})
    assert missing.judgement == "not logged"
    invalid, *_ = figures.gap_figures({1: {"training/rollout_probs_diff_mean": float("nan")}, 2: STEP})
    assert invalid.judgement == "BEYOND 0.02"


def test_without_a_log_the_page_says_so(tmp_path: Path, run: grpo.GrpoRun) -> None:
    assert figures.read_or_tell(run, tmp_path, 0.0) == ([], "no step in metrics*.jsonl of the run")
    (tmp_path / "metrics_1.jsonl").write_text("no json\n")
    found, why = figures.read_or_tell(run, tmp_path, 0.0)
    assert found == [] and "line 1" in why


def test_one_gpu_trains_an_adapter_and_eight_all_weights(run: grpo.GrpoRun) -> None:
    assert run.lora_rank == grpo.LORA_RANK and run.plan is not None
    assert run.plan.actor.gradients < 1e9 and run.plan.actor.total < find_gpu("h100").memory_bytes
    eight = grpo.plan_run("longvt", "qwen2.5-vl-7b", find_gpu("h100"), 8)
    assert eight.lora_rank == 0 and eight.options.ulysses > 1


def test_the_engine_asks_for_no_more_gpus_than_there_are(tmp_path: Path) -> None:
    one = grpo.plan_run("framemind", "qwen2.5-vl-7b", find_gpu("h100"), 1)
    stages = {stage.name: stage for stage in first_gpu.make_stages(one, tmp_path, rehearse=False)}
    assert "actor_rollout_ref.rollout.tensor_model_parallel_size=1" in stages["grpo"].command  # the paper's own is 4


def test_sequences_are_divided_as_planned(tmp_path: Path) -> None:
    eight = grpo.plan_run("longvt", "qwen2.5-vl-7b", find_gpu("h100"), 8)
    command = grpo.grpo_stage(eight, tmp_path, 1, rehearse=False).command
    assert eight.options.ulysses == 2
    assert "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2" in command


def test_commands_of_the_recipe(tmp_path: Path, run: grpo.GrpoRun) -> None:
    stages = {stage.name: stage for stage in first_gpu.make_stages(run, tmp_path, rehearse=False)}
    assert list(stages) == list(first_gpu.LIMITS_SECONDS)
    assert sum(stage.limit_seconds for stage in stages.values()) <= 3720
    recipe = stages["grpo"]
    assert "actor_rollout_ref.model.lora_rank=32" in recipe.command
    assert Path(recipe.command[1]).is_file() and "trainer.total_training_steps=2" in recipe.command
    rehearsal = {stage.name: stage for stage in first_gpu.make_stages(run, tmp_path, rehearse=True)}
    assert "rows" not in rehearsal and rehearsal["grpo"].environment["DEVICE"] == "cpu"


@pytest.mark.parametrize("method", first_gpu.METHODS)
def test_rows_are_valid(tmp_path: Path, method: str) -> None:
    path = rows.make_rows(LongVideo("small", 160, 90, copy_seconds=1, copies=4), tmp_path, method, 8)
    reports = list(validate_file(path))
    assert len(reports) == 8 and not any(report.problems for report in reports)


def test_without_gpu_or_model_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(first_gpu, "describe", lambda: Machine((), 0.0, {}))
    assert first_gpu.main([]) == 1 and "no GPU" in capsys.readouterr().err
    monkeypatch.setattr(first_gpu, "describe", lambda: MACHINE)
    assert first_gpu.main([]) == 2 and "MODEL=" in capsys.readouterr().err


def test_the_machine_is_described() -> None:
    facts = describe().facts
    assert facts["verl"] == "0.9.1" and facts["flash-attn"] and facts["cores"]
