"""The first hour on a GPU with stand-in commands: limits, the page, figures against the plan."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.first_gpu import __main__ as first_gpu
from benchmarks.first_gpu import attention, figures, grpo, rows, sleep
from benchmarks.first_gpu.machine import Machine, describe
from benchmarks.first_gpu.stages import Outcome, Stage, run_stage
from benchmarks.gpu_model import memory
from benchmarks.gpu_model.meter import Meter
from benchmarks.video.long_files import LongVideo
from tests.verl_plugin.varlen_kernel import kernel_on_cpus
from tests.waiting import is_gone, wait_until
from verl_video_tools.data.validate import validate_file
from verl_video_tools.launch.plan import find_gpu
from verl_video_tools.verl_plugin import varlen

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


def python(name: str, program: str, *arguments: str, limit_seconds: float = 110) -> Stage:
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
        python("rows", LEAVES_A_CHILD, limit_seconds=5),
        Stage("lost", ["/no/such/program"], 5),
        python("actor", "print('a warning'); print('## Parts of it\\n\\n| head | 1.5 |'); print('another')"),
        python("grpo", WRITES_A_LOG, str(tmp_path / "grpo"), json.dumps(STEP)),
    ]
    assert not first_gpu.go(MACHINE, run, stages, [], tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "3 of 6 parts ended well. framethinker, qwen2.5-vl-7b" in text
    assert "| doctor | ok |" in text and "| tests | failed, exit code 3 |" in text
    assert "| rows | out of time |" in text and "| lost | failed |" in text and "| grpo | ok |" in text
    assert "| flash-attn | warning | is not installed | uv pip install |" in text
    assert "## Parts of it\n\n| head | 1.5 |\n\n" in text and "a warning" not in text
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
    missing, *_ = figures.gap_figures({1: {}}, 0.02)
    assert missing.judgement == "not logged"
    invalid, *_ = figures.gap_figures({1: {"training/rollout_probs_diff_mean": float("nan")}, 2: STEP}, 0.02)
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


def test_a_part_of_the_vocabulary_widens_the_bound_of_the_gap(tmp_path: Path) -> None:
    """FrameMind samples with top_p = 0.9."""
    framemind = grpo.plan_run("framemind", "qwen2.5-vl-7b", find_gpu("h100"), 1)
    values = STEP | {"training/rollout_probs_diff_mean": 0.11}
    (tmp_path / "metrics_1.jsonl").write_text(json.dumps({"step": 1, "data": values}) + "\n")
    found = {figure.name: figure for figure in figures.read_figures(framemind, tmp_path, 0)}
    assert found["training/rollout_probs_diff_mean"].judgement == "within 0.12"


def test_the_engine_asks_for_no_more_gpus_than_there_are(tmp_path: Path) -> None:
    one = grpo.plan_run("framemind", "qwen2.5-vl-7b", find_gpu("h100"), 1)
    (stage,) = first_gpu.make_stages(["grpo"], one, tmp_path)
    assert "actor_rollout_ref.rollout.tensor_model_parallel_size=1" in stage.command


def test_sequences_are_divided_as_planned(tmp_path: Path) -> None:
    eight = grpo.plan_run("longvt", "qwen2.5-vl-7b", find_gpu("h100"), 8)
    command = grpo.grpo_stage(eight, tmp_path, 1).command
    assert eight.options.ulysses == 2
    assert "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2" in command


def test_commands_of_the_recipe(tmp_path: Path, run: grpo.GrpoRun) -> None:
    stages = {stage.name: stage for stage in first_gpu.make_stages(list(first_gpu.LIMITS_SECONDS), run, tmp_path)}
    assert list(stages) == list(first_gpu.LIMITS_SECONDS)
    assert sum(stage.limit_seconds for stage in stages.values()) == 75 * 60
    recipe = stages["grpo"]
    assert "actor_rollout_ref.model.lora_rank=32" in recipe.command
    assert Path(recipe.command[1]).is_file() and "trainer.total_training_steps=2" in recipe.command


@pytest.mark.parametrize("method", first_gpu.METHODS)
def test_rows_are_valid(tmp_path: Path, method: str) -> None:
    path = rows.make_rows(LongVideo("small", 160, 90, copy_seconds=1, copies=4), tmp_path, method, 8)
    reports = list(validate_file(path))
    assert len(reports) == 8 and not any(report.problems for report in reports)


def test_without_weights_it_says_which_parts_need_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(first_gpu, "describe", lambda: MACHINE)
    assert first_gpu.main([]) == 2
    message = capsys.readouterr().err
    assert "no weights for sleep, rows, grpo, actor" in message and "MODEL=" in message
    with pytest.raises(SystemExit):
        first_gpu.main(["--only", "pinned,pined"])
    assert "unknown pined" in capsys.readouterr().err


def test_without_a_gpu_it_runs_what_needs_none_and_lists_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(first_gpu, "describe", lambda: Machine((), 0.0, {}))
    ran: list[str] = []

    def run_nothing(stage: Stage, folder: Path) -> Outcome:
        ran.append(stage.name)
        (folder / "empty.log").write_text("")
        return Outcome(stage, "ok", 0, 1.0, folder / "empty.log")

    monkeypatch.setattr(first_gpu, "run_stage", run_nothing)
    assert first_gpu.main(["--out", str(tmp_path)]) == 0
    assert ran == list(first_gpu.WITHOUT_GPU)
    text = (tmp_path / "page.md").read_text()
    assert "5 of 5 parts ended well, 4 wait for a GPU." in text
    assert all(f"| {name} | waiting for a GPU |" in text for name in ("tests", "sleep", "rows", "grpo"))


WITHOUT_VERL = """
import sys
sys.modules.update(dict.fromkeys(("verl", "vllm", "ray", "tensordict", "hydra", "pyarrow")))  # importing them fails
from benchmarks.first_gpu import __main__, attention, pinned
from benchmarks.gpu_model import memory
assert memory.load_fused_head() is None
pinned.main()
"""


@pytest.mark.slow
def test_the_parts_without_weights_need_no_verl(tmp_path: Path) -> None:
    outcome = run_stage(python("pinned", WITHOUT_VERL), tmp_path)
    assert outcome.status == "ok", outcome.output
    assert "| qwen2.5-vl-7b, weights and moments | planned |" in outcome.output
    assert "1.89 times their 12.4 GB" in outcome.output


HEADS = {
    "text": attention.Heads("text", queries=4, keys=2, size=128, causal=True),
    "tower": attention.Heads("tower", queries=2, keys=2, size=72, causal=False),
}


@pytest.mark.parametrize("kind", HEADS)
def test_packed_attention_above_a_double_of_the_kernel(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "has_kernel", lambda device: True)
    with kernel_on_cpus() as calls:
        error = attention.difference(HEADS[kind], "cpu", torch.bfloat16)
    assert 1e-4 < error <= attention.BOUND and (calls.forward, calls.backward) == (1, 1)


def test_sequences_that_see_each_other_are_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(heads: attention.Heads, inputs: list[torch.Tensor], lengths: tuple[int, ...]) -> torch.Tensor:
        return attention.unpacked(heads, inputs, (sum(lengths),))

    meter = Meter("cpu")
    assert attention.measure(meter, HEADS["tower"])
    monkeypatch.setattr(attention, "packed", leaking)
    assert not attention.measure(meter, HEADS["tower"])
    assert ["BEYOND" in line.note for line in meter.lines] == [False, False, False, True]


def test_heads_are_those_of_released_models() -> None:
    sizes = {heads.name: (heads.queries, heads.keys, heads.size) for heads in attention.published_heads()}
    assert sizes == {
        "qwen2.5-vl-7b, text": (28, 4, 128),
        "qwen2.5-vl-7b, tower": (16, 16, 80),
        "qwen3-vl-8b, text": (32, 8, 128),
        "qwen3-vl-8b, tower": (16, 16, 72),
    }


def test_verls_fused_head_is_loaded_alone() -> None:
    model = SimpleNamespace(lm_head=torch.nn.Linear(16, 50, bias=False))
    hidden, labels = torch.randn(1, 600, 16), torch.randint(50, (600,))
    stand_in = memory.head_losses(model, hidden, labels, None)
    assert torch.allclose(memory.head_losses(model, hidden, labels, memory.load_fused_head()), -stand_in, atol=1e-5)


def test_what_the_same_weights_write() -> None:
    assert sleep.are_same([-0.1, -0.2], [-0.1, -0.2001])
    assert not sleep.are_same([-0.1, -0.2], [-0.1, -0.3])


def test_the_machine_is_described() -> None:
    facts = describe().facts
    assert facts["verl"] == "0.9.1" and facts["flash-attn"] and facts["cores"]
