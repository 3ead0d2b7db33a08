"""What a request and the environment make of a run's options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="a run configures verl")

from omegaconf import OmegaConf

from tests.recipes.options import CACHE_GB, CACHED, plan_in
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch.environment import Variables
from verl_video_tools.launch.train import Plan, Request, _device, _loggers, compose

pytestmark = pytest.mark.slow

REAL = {"DEVICE": "gpu", "TRAIN_FILES": "train.parquet"}


def plan(
    folder: Path, stage: Any, *overrides: str, method: str = "framethinker", synthetic: bool = False, **variables: str
) -> Plan:
    cached = (CACHED,) if stage == "grpo" and not any(CACHE_GB in option for option in overrides) else ()
    given = {"DEVICE": "cpu"} | variables
    request = Request(
        stage,
        (f"+video_tools={method}_{stage}", *overrides, *(cached if given["DEVICE"] == "gpu" else ())),
        synthetic=synthetic,
    )
    return plan_in(folder, request, **given)


def test_paths_of_any_characters(tmp_path: Path) -> None:
    odd = tmp_path / "lr=1e-6, (a) [b] it's"
    odd.mkdir()
    config = plan(tmp_path, "grpo", method="mixed", OUTPUT_DIR=str(odd), MODEL_PATH=str(odd)).config
    assert config.trainer.default_local_dir == str(odd / "mixed_grpo")
    assert config.actor_rollout_ref.model.path == str(odd)
    assert Path(config.data.train_files).parent.parent == odd
    fields = config.actor_rollout_ref.rollout.custom.video_tools
    assert Path(fields.framethinker.prompt_file).is_relative_to(odd)


def test_files_are_paths_from_the_root_and_names_of_the_hub_stay(tmp_path: Path) -> None:
    """Workers of a Ray cluster run in other folders."""
    (tmp_path / "my model").mkdir()
    (tmp_path / "rows.parquet").touch()
    for model, expected in (("my model", f"{tmp_path}/my model"), ("Qwen/Qwen2.5-VL-7B-Instruct",) * 2):
        variables = {"DEVICE": "gpu", "MODEL_PATH": model, "TRAIN_FILES": "rows.parquet", "OUTPUT_DIR": "outputs"}
        config = plan(tmp_path, "sft", **variables).config
        assert (config.model.path, config.data.train_files) == (expected, f"{tmp_path}/rows.parquet")
        assert config.trainer.default_local_dir == f"{tmp_path}/outputs/framethinker_sft"
    own = plan(tmp_path, "sft", "trainer.default_local_dir=here", **REAL)
    assert own.config.trainer.default_local_dir == f"{tmp_path}/here"


@pytest.mark.parametrize("variables", [{"DEVICE": "cpu"}, {"DEVICE": "gpu"}])
def test_own_rows_have_room_and_are_not_validated_on_those_of_the_synthetic_world(
    variables: dict[str, str], tmp_path: Path
) -> None:
    synthetic = plan(tmp_path, "grpo", synthetic=True, **variables).config
    assert synthetic.data.val_files == f"{tmp_path}/demo_framethinker/test.parquet"
    assert synthetic.data.max_prompt_length == 512
    own = variables | {"TRAIN_FILES": "/own.parquet"}
    run = plan(tmp_path, "grpo", synthetic=True, **own)
    assert run.is_synthetic and run.config.data.val_files == "/own.parquet"
    assert (run.config.data.max_prompt_length, run.config.actor_rollout_ref.rollout.max_model_len) == (4096, 8192)
    assert run.config.video_tools.framethinker == synthetic.video_tools.framethinker, "the tiny model's fields"
    assert (
        plan(tmp_path, "grpo", synthetic=True, VAL_FILES="/val.parquet", **own).config.data.val_files == "/val.parquet"
    )
    short = plan(tmp_path, "grpo", "data.max_prompt_length=99", synthetic=True, **own).config
    assert short.data.max_prompt_length == 99, "options have the last word"
    made = plan(tmp_path, "grpo", "video_tools.demo.is_made=true", synthetic=True, **own).config
    assert made.data.max_prompt_length == 512, "rows of a synthetic world that is there"
    assert plan(tmp_path, "sft", synthetic=True, **own).config.data.max_length == 8192


def test_a_job_of_ray_keeps_its_output(tmp_path: Path) -> None:
    """The job's own folder may go away with it, and would take the checkpoints along."""
    job = {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}", "RAY_ADDRESS": "10.0.0.1:6379"}
    for folder in ("outputs", ""):
        with pytest.raises(UsageError, match="set OUTPUT_DIR to an absolute path that every node sees"):
            plan(tmp_path, "grpo", OUTPUT_DIR=folder, **job)
    config = plan(tmp_path, "grpo", OUTPUT_DIR="/shared/outputs", **job).config
    assert config.trainer.default_local_dir == "/shared/outputs/framethinker_grpo"


def test_lists_of_files_stay_lists(tmp_path: Path) -> None:
    config = plan(tmp_path, "sft", DEVICE="gpu", TRAIN_FILES="[/a.parquet,/b.parquet]").config
    assert list(config.data.train_files) == ["/a.parquet", "/b.parquet"]


def test_options_behind_the_group_have_the_last_word(tmp_path: Path) -> None:
    config = plan(tmp_path, "grpo", "trainer.nnodes=3", NNODES="2", **REAL).config
    assert config.trainer.nnodes == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("console", ["console", "file"]),
        (["console", "wandb"], ["console", "wandb", "file"]),
        (["file", "console"], ["file", "console"]),
    ],
)
def test_verls_log_always_goes_to_a_file_too(given: str | list[str], expected: list[str]) -> None:
    assert _loggers(OmegaConf.create({"trainer": {"logger": given}})) == expected


def test_verl_composes_the_configuration_that_was_planned(tmp_path: Path) -> None:
    planned = plan(tmp_path, "sft", LOGGER="[console,wandb]")
    assert list(planned.config.trainer.logger) == ["console", "wandb", "file"]
    assert compose("sft", planned.overrides) == planned.config


def test_a_cluster_is_joined_with_the_variables_that_workers_need(tmp_path: Path) -> None:
    """Ray refuses `num_cpus` of a cluster that exists; workers on other nodes know nothing of the caller's shell."""
    variables = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "PYTHONPATH": f"/plug ins:/it's here:{os.environ.get('PYTHONPATH', '')}",
        "VVT_FRAME_CACHE_BYTES": "1000",
        "VVT_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "VLLM_HOST_IP": "10.0.0.1",
        "SWANLAB_MODE": "offline",
        "SWANLAB_API_KEY": "secret",
        "UNRELATED": "1",
    }
    init = compose("grpo", plan(tmp_path, "grpo", **variables).options).ray_kwargs.ray_init
    assert init.num_cpus is None and "num_gpus" not in init and "address" not in init
    passed = dict(init.runtime_env.env_vars)
    forwarded = ("PYTHONPATH", "VVT_FRAME_CACHE_BYTES", "SWANLAB_MODE")
    assert {name: passed.get(name) for name in variables} == {
        name: value if name in forwarded else None for name, value in variables.items()
    }
    assert (passed["VERL_PLATFORM"], passed["OMP_NUM_THREADS"], passed["TORCHDYNAMO_DISABLE"]) == ("cpu", "1", "1")
    run_dir = tmp_path / "framethinker_grpo"
    assert passed["VERL_FILE_LOGGER_PATH"].startswith(str(run_dir)), "the logger runs in a worker, too"
    of_trackers = {"TENSORBOARD_DIR": "tensorboard", "WANDB_DIR": "", "SWANLAB_LOG_DIR": "swanlog"}
    assert {name: passed[name] for name in of_trackers} == {
        name: str(run_dir / place) for name, place in of_trackers.items()
    }, "a worker's folder goes away with the job"
    assert passed["VERL_DATAPROTO_SERIALIZATION_METHOD"] == "numpy", "sender and receiver have to agree"


@pytest.mark.parametrize(
    ("address", "num_gpus", "expected"),
    [("auto", 0, "set DEVICE=gpu or DEVICE=cpu"), ("auto", 1, "gpu"), ("local", 0, "cpu"), ("", 0, "cpu")],
)
def test_a_node_without_a_gpu_does_not_decide_for_a_cluster(
    address: str, num_gpus: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The synthetic world would train there instead of the user's rows."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n" + "echo NVIDIA H100, 81559 MiB\n" * num_gpus)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    variables = Variables({"RAY_ADDRESS": address})
    if len(expected) == 3:
        assert _device(variables) == expected
    else:
        with pytest.raises(UsageError, match=expected):
            _device(variables)


@pytest.mark.parametrize(
    ("variables", "overrides", "message"),
    [
        ({"DEVICE": "tpu"}, ["+video_tools=longvt_grpo"], "DEVICE must be cpu or gpu, got 'tpu'"),
        ({"MODEL_PATHS": "/m"}, ["+video_tools=longvt_grpo"], "has MODEL_PATHS, .* set MODEL_PATH, and unset it"),
        ({"DRY_RUN": "1"}, ["+video_tools=longvt_grpo"], "has DRY_RUN, .* give --dry-run, and unset it"),
        ({}, ["trainer.nnodes=1"], r"a run needs a config group: \+video_tools=<method>_grpo"),
        ({}, ["+video_tools=longvt_grpo", "video_tools.longvt.inital_frames=1"], "inital_frames"),
    ],
)
def test_what_makes_no_run(variables: dict[str, str], overrides: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        plan_in(tmp_path, Request("grpo", tuple(overrides)), **{"DEVICE": "cpu"} | variables)


def test_the_cache_of_images_holds_the_rollouts_under_way(tmp_path: Path) -> None:
    def cache_gb(method: str, *options: str) -> float:
        planned = plan_in(tmp_path, Request("grpo", (f"+video_tools={method}_grpo", *options)), **REAL)
        engine = planned.config.actor_rollout_ref.rollout.engine_kwargs.vllm
        if options == ("trainer.nnodes=2",):
            assert compose("grpo", planned.overrides) == planned.config
        return float(engine.get("mm_processor_cache_gb", -1))

    assert cache_gb("videozoomer") > cache_gb("videozoomer", "trainer.nnodes=2") > 4
    assert cache_gb("longvt", f"+{CACHE_GB}=7") == 7
    assert cache_gb("longvt", "actor_rollout_ref.model.path=nobody/no-model") == -1, "vLLM's default"
