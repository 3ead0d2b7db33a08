"""The dry run of a GRPO recipe: a good run passes, and each fault is found, named and given a fix."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dry_run.conftest import Checks, DryRunOf
from tests.judge_server import JudgeServer
from verl_video_tools.core.check import Status
from verl_video_tools.core.environment import list_gpus
from verl_video_tools.dry_run.report import DryRun, as_json, render
from verl_video_tools.synthetic import base_model_dir, clip_dir

pytestmark = pytest.mark.slow

WriteRows = Callable[[list[dict[str, Any]]], str]
CUSTOM = "++video_tools"


def failed(checks: Checks) -> set[str]:
    assert all(check.fix for check in checks.values() if check.status is Status.FAILED), "a fix for each problem"
    return {name for name, check in checks.items() if check.status is Status.FAILED}


def test_a_good_run_passes(dry_run: DryRunOf) -> None:
    checks = dry_run()
    assert failed(checks) == set()
    assert checks["training rows"].found == "4 of 40 looked at"
    assert checks["training videos"].found == "4 rows opened in time, first frames of 4 decoded"
    assert checks["weights"].detail == "files, not loaded: model.safetensors"
    assert not any("trained" in check.detail for check in checks.values())


def test_nothing_is_started_and_nothing_left_behind(dry_run: DryRunOf, tmp_path: Path) -> None:
    import ray

    run = tmp_path / "run"
    dry_run(f"trainer.default_local_dir={run}")
    assert not ray.is_initialized() and not run.exists()


def test_an_engine_as_long_as_the_model_is_no_fault(dry_run: DryRunOf) -> None:
    lengths = dry_run("actor_rollout_ref.rollout.max_model_len=null")["lengths"]
    assert lengths.status is Status.OK and lengths.found.endswith("tokens, engine as the model")


@pytest.mark.parametrize(
    ("option", "name", "detail"),
    [
        ("data.max_prompt_length=64", "training prompts", "4 rows would be left out of training: row 0: the"),
        ("actor_rollout_ref.rollout.limit_images=3", "training prompts", "images, the run allows 3"),
        ("actor_rollout_ref.rollout.max_model_len=600", "lengths", "the engine is shorter than a rollout may be"),
        ("actor_rollout_ref.rollout.n=1", "group", "1 per question, temperature 1 GRPO compares"),
        ("actor_rollout_ref.rollout.temperature=0", "group", "without sampling all rollouts of a question are the"),
        ("trainer.n_gpus_per_node=0", "options", "verl refuses the options: "),
        ("actor_rollout_ref.rollout.no_such_option=1", "options", "no_such_option"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=99", "options", "verl refuses the options"),
        (f"{CUSTOM}.framethinker.no_such_field=1", "options", "no_such_field"),
        (f"{CUSTOM}.judge.no_such_field=1", "options", "no_such_field"),
        ("++video_tools.trainer.record_token=true", "options", "did you mean 'record_tokens'?"),
        ("actor_rollout_ref.model.path=nodir", "processor", "'nodir' is no folder here"),
        ("data.train_files=/no/such.parquet", "training rows", "/no/such.parquet"),
        ("data.val_files=/no/such.parquet", "validation rows", "/no/such.parquet"),
        ("data.train_batch_size=44", "batch", "40 rows cannot fill one batch of 44"),
        (f"{CUSTOM}.judge.base_url=not-an-address", "options", "not-an-address"),
        ('trainer.logger=["console","swanlab"]', "logger", "not installed: swanlab"),
        ("actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2", "flash-attn", "needs a GPU"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(option: str, name: str, detail: str, dry_run: DryRunOf) -> None:
    checks = dry_run(option)
    assert failed(checks) == {name}
    assert detail in f"{checks[name].found} {checks[name].detail}"


def test_validation_rows_count_where_the_run_validates(dry_run: DryRunOf) -> None:
    long = "data.max_prompt_length=64"
    assert dry_run(long)["validation prompts"].status is Status.WARNING
    assert failed(dry_run(long, "trainer.test_freq=5")) == {"training prompts", "validation prompts"}


def test_swapped_pixel_bounds_are_one_problem(dry_run: DryRunOf) -> None:
    swapped = ("data.mm_processor_kwargs.min_pixels=50176", "data.mm_processor_kwargs.max_pixels=784")
    checks = dry_run(*swapped)
    assert failed(checks) == {"pixels"}
    assert checks["pixels"].fix == "swap them: min_pixels=784, max_pixels=50176"
    assert checks["training prompts"].status is Status.OK, "the rest is checked with bounds in order"


def test_bad_rows_are_named(
    dry_run: DryRunOf, write_rows: WriteRows, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    bad = copy.deepcopy(rows[:5])
    bad[1]["extra_info"]["video_path"] = "/no/such.mp4"
    bad[2]["reward_model"]["ground_truth"] = "Z"
    bad[3]["extra_info"]["video_path"] = str(tmp_path / "broken.mp4")
    (tmp_path / "broken.mp4").write_bytes(b"no video" * 100)
    checks = dry_run(f"data.train_files={write_rows(bad)}", num_rows=5)
    assert failed(checks) == {"training rows", "training prompts"}
    contents, opened = checks["training rows"].detail, checks["training prompts"].detail
    assert contents.startswith("2 rows cannot be used: row 1: no such video file: /no/such.mp4; row 2: ")
    assert opened.startswith("1 row would be left out of training: row 3: ") and "broken.mp4" in opened


@pytest.mark.parametrize(("nodes", "status"), [(1, Status.WARNING), (2, Status.FAILED)])
def test_relative_paths(
    nodes: int,
    status: Status,
    dry_run: DryRunOf,
    write_rows: WriteRows,
    rows: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = copy.deepcopy(rows[:4])
    folder = Path(some[2]["extra_info"]["video_path"]).parent
    some[2]["extra_info"]["video_path"] = Path(some[2]["extra_info"]["video_path"]).name
    monkeypatch.chdir(folder)
    check = dry_run(f"data.train_files={write_rows(some)}", f"trainer.nnodes={nodes}")["training: relative paths"]
    assert check.status is status and check.detail.startswith("1 row (row 2 first)")


def test_an_unknown_loop_and_a_missing_retriever(
    dry_run: DryRunOf, write_rows: WriteRows, rows: list[dict[str, Any]]
) -> None:
    file = f"data.train_files={write_rows([{**row, 'agent_name': 'nobody'} for row in rows[:4]])}"
    assert "not registered: nobody" in dry_run(file)["training rows"].detail
    file = f"data.train_files={write_rows([{**row, 'agent_name': 'videobrain'} for row in rows[:4]])}"
    assert "the run has no retriever" in dry_run(file)["training rows"].detail


def test_open_questions_need_a_judge_that_answers(
    dry_run: DryRunOf, write_rows: WriteRows, rows: list[dict[str, Any]]
) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    asked = copy.deepcopy(rows[:4])
    for row in asked:
        row["extra_info"] |= {"question_type": "open", "options": []}
        row["reward_model"]["ground_truth"] = "a yellow circle"
    file = f"data.train_files={write_rows(asked)}"
    without = dry_run(file)["training rows"]
    assert "needs a judge" in without.detail and without.fix.startswith(
        "video_tools.judge.base_url=URL for open questions"
    )
    with JudgeServer() as server:
        address = f"{CUSTOM}.judge.base_url={server.base_url}"
        good = dry_run(file, address)
    assert failed(good) == set() and good["known correct answer"].found == "correct"


@pytest.mark.usefixtures("short_backoff")
def test_services_that_are_down(dry_run: DryRunOf) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    with JudgeServer() as server:
        pass
    checks = dry_run(
        f"{CUSTOM}.judge.base_url={server.base_url}",
        f"{CUSTOM}.tool_model.base_url={server.base_url}",
        f"{CUSTOM}.tool_model.deadline_seconds=2",
        f"{CUSTOM}.retrieval.model=/no/such/encoder",
    )
    assert failed(checks) == {"endpoint", "reply", "encoder"}


def test_the_retriever_answers_a_query(dry_run: DryRunOf) -> None:
    checks = dry_run(f"{CUSTOM}.retrieval.model={clip_dir()}")
    assert failed(checks) == set()
    assert checks["query"].found.endswith(", of 8 compared")


def test_a_missing_cold_start_is_told_and_the_base_model_stands_in(dry_run: DryRunOf) -> None:
    checks = dry_run("actor_rollout_ref.model.path=/not/yet", stand_in=str(base_model_dir()))
    assert failed(checks) == set()
    assert checks["folder"].status is Status.WARNING and "not there yet" in checks["folder"].detail
    assert checks["training prompts"].status is Status.OK and "weights" not in checks


def test_weights_that_are_not_all_there(dry_run: DryRunOf, tmp_path: Path) -> None:
    for file in base_model_dir().iterdir():
        if file.suffix != ".safetensors":
            os.symlink(file, tmp_path / file.name)
    path = f"actor_rollout_ref.model.path={tmp_path}"
    assert dry_run(path)["weights"].detail == "no file of weights"
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").touch()
    assert dry_run(path)["weights"].detail == "missing: model-2.safetensors"


def test_a_folder_without_a_tokenizer_is_told(dry_run: DryRunOf, tmp_path: Path) -> None:
    for file in base_model_dir().iterdir():
        if not file.name.startswith("token"):
            os.symlink(file, tmp_path / file.name)
    checks = dry_run(f"actor_rollout_ref.model.path={tmp_path}")
    assert failed(checks) == {"processor"} and f"the tokenizer in {tmp_path} is not" in checks["processor"].detail


def test_memory_is_planned_for_gpus(dry_run: DryRunOf) -> None:
    checks = dry_run(device="gpu", gpu="a100-40gb")
    assert "a100-40gb" in checks["plan"].found and checks["GPUs"].status is Status.WARNING
    unknown = dry_run(device="gpu", gpu="abacus")
    assert unknown["plan"].status is Status.FAILED and "'abacus' is not known" in unknown["plan"].detail


def test_a_plan_that_does_not_fit_is_a_warning(dry_run: DryRunOf) -> None:
    checks = dry_run("actor_rollout_ref.rollout.gpu_memory_utilization=0.05", device="gpu", gpu="a100-40gb")
    assert checks["plan"].status is Status.WARNING and "vLLM's cache" in checks["plan"].detail
    assert failed(checks) == set()


def test_more_gpus_than_can_share_the_model(dry_run: DryRunOf) -> None:
    options = ("trainer.n_gpus_per_node=8", "actor_rollout_ref.rollout.tensor_model_parallel_size=8")
    checks = dry_run(*options, device="gpu", gpu="h100")
    assert failed(checks) == {"plan"} and "(4 heads" in checks["plan"].detail


@pytest.mark.parametrize(("device", "times"), [("gpu", 1), ("cpu", 0)])
def test_the_gpus_are_asked_for_once(
    device: str, times: int, dry_run: DryRunOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho >> {asked}\necho 'NVIDIA A100-SXM4-40GB, 40960 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("verl_video_tools.dry_run.report.list_gpus", list_gpus)
    checks = dry_run(device=device)
    assert (asked.read_text() if asked.exists() else "") == times * "\n"
    assert ("plan" in checks and "(NVIDIA A100-SXM4-40GB)" in checks["plan"].found) == (device == "gpu")


def test_the_table_and_the_json_say_the_same(dry_run: DryRunOf) -> None:
    run = DryRun("grpo", [], "cpu")
    good, bad = dry_run(), dry_run("actor_rollout_ref.rollout.max_model_len=600")
    assert render(run, list(good.values())).endswith("No problem found. Nothing was started.")
    assert render(run, list(bad.values())).endswith("1 problem to fix before the run: lengths.")
    assert [json.loads(as_json(run, list(checks.values())))["ok"] for checks in (good, bad)] == [True, False]


def test_an_error_of_our_own_costs_no_more_than_the_rest_of_the_table(
    dry_run: DryRunOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("verl_video_tools.dry_run.report.machine.check_gpus", broken)
    checks = dry_run()
    assert failed(checks) == {"error"} and checks["training rows"].status is Status.OK
    assert checks["error"].detail == "RuntimeError: a bug" and "Traceback" in capsys.readouterr().err
