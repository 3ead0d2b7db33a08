"""The checks of a GRPO run: a good run passes, and each fault is found, named and given a fix."""

from __future__ import annotations

import copy
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.judge_server import JudgeServer
from tests.launch.checks.conftest import ChecksOf, failed
from tests.recipes.options import Composed
from tests.verl_plugin.harness import model_dir
from verl_video_tools.core import machine as core_machine
from verl_video_tools.launch.checks import installation
from verl_video_tools.launch.checks import run as run_module
from verl_video_tools.launch.checks.report import Check, PlannedRun, Status
from verl_video_tools.launch.checks.run import RunCheck, check_run
from verl_video_tools.synthetic import base_model_dir, clip_dir

pytestmark = pytest.mark.slow

WriteRows = Callable[[list[dict[str, Any]]], str]
CUSTOM = "++video_tools"
MODEL_PATH = "actor_rollout_ref.model.path"
ONE_ROLLOUT = "actor_rollout_ref.rollout.n=1 data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=8"


@pytest.mark.parametrize("thorough", [False, True])
def test_a_good_run_passes(thorough: bool, checks_of: ChecksOf, tmp_path: Path) -> None:
    """Nothing is started, and nothing left behind."""
    import ray

    checks = checks_of(f"trainer.default_local_dir={tmp_path / 'run'}", thorough=thorough)
    assert {check.status for check in checks.values()} == {Status.OK}
    assert checks["training rows"].found == "4 of 40 looked at"
    assert not ray.is_initialized() and not (tmp_path / "run").exists()


def test_a_cluster_that_nobody_listens_at_stops_a_start(checks_of: ChecksOf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        checks = checks_of(thorough=False, ray_address=address)
        assert failed(checks) == set() and checks["cluster"].found == address
    checks = checks_of(thorough=False, ray_address=address)
    assert failed(checks) == {"cluster"} and "no Ray answers there" in checks["cluster"].detail
    for other in (None, "auto", "ray://head:10001"):
        assert "cluster" not in checks_of(thorough=False, ray_address=other)


def test_an_engine_as_long_as_the_model_is_no_fault(checks_of: ChecksOf) -> None:
    assert failed(checks_of("actor_rollout_ref.rollout.max_model_len=null", thorough=False)) == set()


@pytest.mark.parametrize(
    ("option", "name", "detail"),
    [
        ("data.max_prompt_length=64", "training prompts", "4 rows would be left out of training: row 0: the"),
        ("video_tools.max_images=3", "training prompts", "images, the run allows 3"),
        ("actor_rollout_ref.rollout.max_model_len=600", "options", "set actor_rollout_ref.rollout.max_model_len=1024"),
        (ONE_ROLLOUT, "group", "1 per question, temperature 1 GRPO compares"),
        ("actor_rollout_ref.rollout.temperature=0", "group", "without sampling all rollouts of a question are the"),
        ("trainer.n_gpus_per_node=0", "options", "verl refuses the options: "),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=99", "options", "verl refuses the options"),
        (f"{CUSTOM}.framethinker.no_such_field=1", "options", "no_such_field"),
        (f"{CUSTOM}.judge.no_such_field=1", "options", "no_such_field"),
        ("++video_tools.trainer.record_token=true", "options", "did you mean 'record_tokens'?"),
        ("actor_rollout_ref.model.path=nodir", "processor", "'nodir' is no folder here"),
        ("data.mm_processor_kwargs.min_pixels=50176", "processor", "no image has an area from min_pixels=50176"),
        ("data.train_files=/no/such.parquet", "training rows", "/no/such.parquet"),
        ("data.val_files=/no/such.parquet", "validation rows", "/no/such.parquet"),
        ("data.train_batch_size=44", "training rows", "40 training rows do not fill one batch of 44"),
        (f"{CUSTOM}.judge.base_url=not-an-address", "options", "not-an-address"),
        ('trainer.logger=["console","swanlab"]', "logger", "not installed: swanlab"),
    ],
)  # fmt: skip
def test_a_wrong_option_stops_a_start(option: str, name: str, detail: str, checks_of: ChecksOf) -> None:
    checks = checks_of(*option.split(), thorough=False)
    assert failed(checks) == {name}
    assert detail in f"{checks[name].found} {checks[name].detail}"
    assert "is not that of a model of this kind" not in checks[name].detail, "nothing is wrong with the tokenizer"


def test_a_family_of_which_only_parts_are_known_is_a_warning(checks_of: ChecksOf) -> None:
    checks = checks_of(f"actor_rollout_ref.model.path='{model_dir('qwen3_vl_moe')}'", thorough=False)
    assert failed(checks) == set() and checks["family"].status is Status.WARNING
    assert checks["family"].detail.startswith("model_type=qwen3_vl_moe: only parts of it have been tried")


@pytest.mark.parametrize("recipe", ["framethinker_grpo", "framethinker_sft"])
def test_packed_sequences_with_linear_attention_stop_a_start(recipe: str, checks_of: ChecksOf) -> None:
    section = "model" if recipe.endswith("_sft") else "actor_rollout_ref.model"
    path, padded = f"{section}.path='{model_dir('qwen3_5')}'", [f"{section}.use_remove_padding=False"]
    if recipe.endswith("_grpo"):
        padded.append("actor_rollout_ref.rollout.dtype=bfloat16")
    refused = checks_of(path, recipe=recipe, thorough=False)["family"]
    assert refused.status is Status.FAILED and "model.use_remove_padding=False" in refused.detail
    assert checks_of(path, *padded, recipe=recipe, thorough=False)["family"].status is Status.WARNING


def test_a_limit_is_given_with_the_value_to_set(checks_of: ChecksOf) -> None:
    fix = checks_of("data.max_prompt_length=64", "video_tools.max_images=3")["training prompts"].fix
    assert fix.startswith("set data.max_prompt_length=") and " video_tools.max_images=8," in fix


def test_validation_rows_count_where_the_run_validates(checks_of: ChecksOf) -> None:
    long = "data.max_prompt_length=64"
    assert checks_of(long)["validation prompts"].status is Status.WARNING
    assert failed(checks_of(long, "trainer.test_freq=5")) == {"training prompts", "validation prompts"}


def test_some_bad_rows_fail_a_check_and_stop_no_start(
    checks_of: ChecksOf, write_rows: WriteRows, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    bad = copy.deepcopy(rows[:5])
    bad[1]["extra_info"]["video_path"] = "/no/such.mp4"
    bad[2]["reward_model"]["ground_truth"] = "Z"
    bad[3]["extra_info"]["video_path"] = str(tmp_path / "broken.mp4")
    (tmp_path / "broken.mp4").write_bytes(b"no video" * 100)
    file = f"data.train_files={write_rows(bad)}"
    checks = checks_of(file, num_rows=5)
    assert failed(checks) == {"training rows", "training prompts"}
    contents, opened = checks["training rows"].detail, checks["training prompts"].detail
    assert contents.startswith("2 rows cannot be used: row 1: no such file: /no/such.mp4; row 2: ")
    assert opened.startswith("1 row would be left out of training: row 3: ") and "broken.mp4" in opened
    started = checks_of(file, num_rows=5, thorough=False)
    assert failed(started) == set() and started["training rows"].status is Status.WARNING


def test_videos_that_are_not_there_stop_a_start(
    checks_of: ChecksOf, write_rows: WriteRows, rows: list[dict[str, Any]]
) -> None:
    bad = copy.deepcopy(rows[:4])
    for row in bad:
        row["extra_info"]["video_path"] = "/not/mounted.mp4"
    assert failed(checks_of(f"data.train_files={write_rows(bad)}", thorough=False)) == {"training rows"}
    bad[0]["agent_name"] = "tool_agent"  # verl's own loop takes that row, whatever its video
    assert failed(checks_of(f"data.train_files={write_rows(bad)}", thorough=False)) == set()


def test_other_nodes_need_absolute_paths(
    checks_of: ChecksOf, write_rows: WriteRows, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = copy.deepcopy(rows[:4])
    path = Path(some[2]["extra_info"]["video_path"])
    some[2]["extra_info"]["video_path"] = path.name
    monkeypatch.chdir(path.parent)
    file = f"data.train_files={write_rows(some)}"
    assert failed(checks_of(file)) == set()
    assert f"row 2: {path.name} is a relative path" in checks_of(file, uses_other_nodes=True)["training rows"].detail


def test_an_unknown_loop_and_a_missing_retriever(
    checks_of: ChecksOf, write_rows: WriteRows, rows: list[dict[str, Any]]
) -> None:
    file = f"data.train_files={write_rows([{**row, 'agent_name': 'nobody'} for row in rows[:4]])}"
    assert "not registered: nobody" in checks_of(file)["training rows"].detail
    file = f"data.train_files={write_rows([{**row, 'agent_name': 'videobrain'} for row in rows[:4]])}"
    assert "the run has no retriever" in checks_of(file)["training rows"].detail


def test_rows_of_other_loops_and_formats_are_left_alone(
    checks_of: ChecksOf, write_rows: WriteRows, rows: list[dict[str, Any]]
) -> None:
    other = {**rows[0], "agent_name": "single_turn_agent", "extra_info": {"index": 0}}
    assert failed(checks_of(f"data.train_files={write_rows([other] * 4)}")) == set()
    for option in ("data.train_files=rows.jsonl", "data.custom_cls.path=own.py"):
        assert checks_of(option, thorough=False)["training rows"].status is Status.SKIPPED


@pytest.mark.parametrize("num_open", [1, 4])
def test_open_questions_need_a_judge_that_answers(
    num_open: int, checks_of: ChecksOf, write_rows: WriteRows, rows: list[dict[str, Any]]
) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    asked = copy.deepcopy(rows[:4])
    for row in asked[:num_open]:
        row["extra_info"] |= {"question_type": "open", "options": []}
        row["reward_model"]["ground_truth"] = f"a yellow circle {row['extra_info']['index']}"
    file = f"data.train_files={write_rows(asked)}"
    without = checks_of(file, thorough=False)["training rows"]
    assert without.status is Status.FAILED and without.detail.count("needs a judge") == 1, "once for all rows"
    assert without.fix.startswith("set video_tools.judge.base_url=URL for open questions")
    with JudgeServer() as server:
        good = checks_of(file, f"{CUSTOM}.judge.base_url={server.base_url}")
    assert failed(good) == set() and good["known correct answer"].found == "correct"


@pytest.mark.usefixtures("short_backoff")
def test_services_that_are_down(checks_of: ChecksOf) -> None:
    pytest.importorskip("openai", reason="the extra `judge` is not installed")
    with JudgeServer() as server:
        pass
    options = (
        f"{CUSTOM}.judge.base_url={server.base_url}",
        f"{CUSTOM}.tool_model.base_url={server.base_url}",
        f"{CUSTOM}.tool_model.deadline_seconds=2",
        f"{CUSTOM}.retrieval.model=/no/such/encoder",
    )
    assert failed(checks_of(*options)) == {"endpoint", "reply", "encoder"}
    assert failed(checks_of(*options, thorough=False)) == set(), "a start asks nobody"


def test_the_retriever_loads(checks_of: ChecksOf) -> None:
    assert checks_of(f"{CUSTOM}.retrieval.model={clip_dir()}")["encoder"].status is Status.OK


def test_the_base_model_stands_in_for_a_missing_cold_start(checks_of: ChecksOf) -> None:
    checks = checks_of("actor_rollout_ref.model.path=/not/yet", stand_in=str(base_model_dir()), thorough=False)
    assert failed(checks) == set() and checks["training prompts"].status is Status.OK
    assert "not there yet" in checks["weights"].detail


def test_weights_that_are_not_all_there(checks_of: ChecksOf, tmp_path: Path) -> None:
    for file in base_model_dir().iterdir():
        if file.suffix != ".safetensors":
            os.symlink(file, tmp_path / file.name)
    path = f"actor_rollout_ref.model.path={tmp_path}"
    assert checks_of(path, thorough=False)["weights"].detail == "no file of weights"
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").touch()
    assert checks_of(path, thorough=False)["weights"].detail == "missing: model-2.safetensors"


def test_a_folder_without_a_tokenizer_is_named(checks_of: ChecksOf, tmp_path: Path) -> None:
    for file in base_model_dir().iterdir():
        if not file.name.startswith("token"):
            os.symlink(file, tmp_path / file.name)
    checks = checks_of(f"actor_rollout_ref.model.path={tmp_path}", thorough=False)
    assert failed(checks) == {"processor"} and f"the tokenizer in {tmp_path} is not" in checks["processor"].detail


FLASH = "actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_run_does_without_flash_attention(device: str, checks_of: ChecksOf) -> None:
    check = checks_of(FLASH, device=device, thorough=False)["attention"]
    assert check.status is Status.OK and "not installed; torch's own attention" in check.detail


def test_flash_attention_that_does_not_load_stops_a_thorough_check(
    checks_of: ChecksOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Check("packages", "flash-attn", Status.FAILED, "2.8.3", "built for another torch?")
    monkeypatch.setattr(run_module, "check_flash_attention", lambda device: [fault])
    run = PlannedRun("grpo", OmegaConf.create({"actor_rollout_ref": {"model": {}}}), "gpu", thorough=True)
    assert [check.status for check in run_module.check_attention(run)] == [Status.FAILED, Status.OK]


def test_a_check_that_breaks_hides_nothing_and_stops_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_weather(run: PlannedRun) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(
        run_module, "RUN_CHECKS", [RunCheck("x", check_weather), RunCheck("x", run_module.check_loggers)]
    )
    config = OmegaConf.create({"trainer": {"logger": "console"}})
    report = check_run(PlannedRun("grpo", config, "cpu", thorough=False))
    assert [(check.name, check.status) for check in report.checks] == [
        ("weather", Status.WARNING),
        ("logger", Status.OK),
    ]
    assert report.checks[0].detail == "not checked: RuntimeError: a bug" and not report.failed


# ------------------------------------------------------------------------------------------------------------ a machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a node with two GPUs of 80 GB has, for tests to change."""
    found: dict[str, Any] = {
        "gpus": ["NVIDIA X, 81559 MiB"] * 2,
        "cpus": 96,
        "memory": 2**41,
        "shm": 2**37,
        "torch": "",
    }
    monkeypatch.setattr(run_module, "list_gpus", lambda: found["gpus"])
    monkeypatch.setattr(installation, "list_gpus", lambda: found["gpus"])
    monkeypatch.setattr(installation, "python_error", lambda code: found["torch"])
    monkeypatch.setattr(run_module, "num_cpus", lambda: found["cpus"])
    monkeypatch.setattr(run_module, "memory_bytes", lambda: found["memory"])
    monkeypatch.setattr(run_module.shutil, "disk_usage", lambda path: SimpleNamespace(total=found["shm"]))
    return found


def checks_of_gpus(composed: Composed, *options: str, uses_other_nodes: bool = False) -> dict[str, Check]:
    """Those of a machine, for LongVT with 8 GPUs."""
    config = composed("longvt_grpo", "gpu", *options)
    run = PlannedRun("grpo", config, "gpu", thorough=False, uses_other_nodes=uses_other_nodes)
    checks = (run_module.check_gpus, run_module.check_compiler, run_module.check_cpus, run_module.check_memory)
    return {found.name: found for check in checks for found in check(run)}


def test_a_node_that_has_all(machine: dict[str, Any], composed: Composed) -> None:
    checks = checks_of_gpus(composed)
    assert {check.status for check in checks.values()} == {Status.OK}, checks
    assert list(checks) == ["GPU", "torch on GPU", "compiler", "logical CPUs", "memory"]


def test_an_old_driver_stops_a_start_with_torchs_reason(machine: dict[str, Any], composed: Composed) -> None:
    machine["torch"] = "RuntimeError: The NVIDIA driver on your system is too old (found version 12040)"
    check = checks_of_gpus(composed)["torch on GPU"]
    assert check.status is Status.FAILED and "too old" in check.detail and "580 or newer" in check.fix


def test_a_run_on_gpus_that_are_not_here(machine: dict[str, Any], composed: Composed) -> None:
    machine["gpus"] = []
    assert failed(checks_of_gpus(composed)) == {"GPU"}
    elsewhere = checks_of_gpus(composed, uses_other_nodes=True)
    assert {name: check.status for name, check in elsewhere.items()} == {"GPU": Status.SKIPPED}


@pytest.mark.parametrize("method", ["framethinker", "videozoomer", "longvt", "videobrain", "framemind"])
def test_a_machine_without_gpus_lacks_nothing_else(
    method: str, composed: Composed, write_rows: WriteRows, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "list_gpus", list)
    monkeypatch.setattr(run_module, "list_gpus", list)
    own = copy.deepcopy(rows)
    for number, row in enumerate(own):
        row["agent_name"] = method
        row["extra_info"]["classification"] = ("direct", "adaptive", "active")[number % 3]
    file = write_rows(own)
    family = "qwen3_vl" if method == "videobrain" else "qwen2_5_vl"
    options = [
        f"actor_rollout_ref.model.path='{base_model_dir(family)}'",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    ]
    options += [f"data.train_files={file}", f"data.val_files={file}", "data.train_batch_size=8"]
    run = PlannedRun("grpo", composed(f"{method}_grpo", "gpu", *options), "gpu", thorough=False, num_rows=4)
    assert failed({check.name: check for check in check_run(run).checks}) == {"GPU"}


def test_logical_cpus_that_verls_actors_take(machine: dict[str, Any], composed: Composed) -> None:
    """3 for each of 8 GPUs, 8 storage units, the queue's controller, and one that is free."""
    machine["cpus"] = 34
    assert checks_of_gpus(composed)["logical CPUs"].found == "34, of which verl takes 34"
    machine["cpus"] = 33
    check = checks_of_gpus(composed)["logical CPUs"]
    assert (check.status, check.found) == (Status.FAILED, "33")
    assert check.fix.startswith("set ray_kwargs.ray_init.num_cpus=34,")
    assert checks_of_gpus(composed, "ray_kwargs.ray_init.num_cpus=34")["logical CPUs"].status is Status.OK


def test_a_compiler_and_headers_for_triton(
    machine: dict[str, Any], composed: Composed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_module.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = checks_of_gpus(composed)["compiler"]
    assert check.status is Status.FAILED and "a C compiler and Python.h missing" in check.detail


@pytest.mark.parametrize(
    ("what", "num_bytes", "detail"),
    [
        ("shm", 8 * 10**9, " GB of /dev/shm and has 8 GB: start its container with --shm-size=64g"),
        ("memory", 256 * 10**9, " GB of memory and has 256 GB, most of it for offloaded weights, optimizer"),
        ("gpus", 40_000, "the update needs "),
    ],
)
def test_memory_that_is_less_than_planned_is_a_warning_with_both_figures(
    what: str, num_bytes: int, detail: str, machine: dict[str, Any], composed: Composed
) -> None:
    machine[what] = [f"NVIDIA X, {num_bytes} MiB"] if what == "gpus" else num_bytes
    check = checks_of_gpus(composed)["memory"]
    assert check.status is Status.WARNING and detail in check.detail


@pytest.mark.parametrize(
    ("limits", "cpus", "memory"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "4096"}, 2, 4096),
        ({}, 64, None),
        ({"cpu.max": "max 100000", "memory.max": "max"}, 64, None),
    ],
)
def test_a_container_has_what_its_group_may_take(
    limits: dict[str, str], cpus: int, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_machine, "_cgroup_limit", lambda name: limits.get(name, ""))
    monkeypatch.setattr(core_machine.os, "cpu_count", lambda: 64)
    assert core_machine.num_cpus() == cpus
    assert core_machine.memory_bytes() == (memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
