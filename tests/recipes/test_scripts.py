"""What the recipes' scripts hand over: paths, lists, variables of their own and of a cluster."""

from __future__ import annotations

import os
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import (
    RECIPES,
    SETTINGS,
    Composed,
    compose_options,
    recipe_arguments,
    recipe_config,
    sft_recipes,
)


def test_every_script_parses() -> None:
    scripts = sorted(RECIPES.rglob("*.sh"))
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["framethinker_grpo", "mixed_grpo"])
def test_paths_of_any_characters(recipe: str, tmp_path: Path) -> None:
    odd = tmp_path / "lr=1e-6, (a) [b] it's"
    odd.mkdir()
    (odd / "config.json").write_text("{}")
    arguments = recipe_arguments(
        recipe, tmp_path, DEVICE="cpu", OUTPUT_DIR=str(odd), MODEL_PATH=str(odd), CDPATH=".:/tmp"
    )
    config = compose_options("ppo_trainer", arguments)
    assert config.trainer.default_local_dir == str(odd / recipe)
    assert config.actor_rollout_ref.model.path == str(odd)
    assert Path(config.data.train_files).parent.parent == odd
    fields = config.actor_rollout_ref.rollout.custom.video_tools
    assert Path(fields.framethinker.prompt_file).is_relative_to(odd)


def test_lists_of_files_stay_lists(tmp_path: Path) -> None:
    given = recipe_arguments("framethinker_sft", tmp_path, DEVICE="cpu", TRAIN_FILES="[/a.parquet,/b.parquet]")
    assert "data.train_files=[/a.parquet,/b.parquet]" in given


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({}, ["--cold-start={folder}/longvt_sft/train.parquet", "--cold-share=0.94"]),
        ({"SFT_FILES": "/c=d/1.parquet,/e f/2.parquet", "COLD_SHARE": "0.5"},
         ["--cold-start=/c=d/1.parquet", "--cold-start=/e f/2.parquet", "--cold-share=0.5"]),
        ({"COLD_SHARE": "0", "MIN_RL_STEP": "3", "MAX_RL_STEP": "20"}, ["--min-step=3", "--max-step=20"]),
    ],
)  # fmt: skip
def test_rft_mixes_rows_of_the_cold_start(variables: dict[str, str], options: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    arguments = recipe_arguments(
        "longvt_rft", tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path), SFT_DIR="/a=b", MAKE_DEMO="0", **variables
    )
    assert "data.train_files='/a=b/rft.parquet'" in arguments
    words = (tmp_path / "vvt.txt").read_text().splitlines()
    assert words[:2] == ["data", "export-rft"] and words[3:5] == ["/a=b/rft.parquet", "--overwrite"]
    given = [f"{name}={value}" for name, value in zip(words[5::2], words[6::2], strict=True)]
    assert given == ["--min-iou=0.3", *(option.format(folder=tmp_path) for option in options)]


def test_rft_on_real_data_asks_for_the_cold_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match="SFT_FILES: parquet files of the cold start; or COLD_SHARE=0"):
        recipe_arguments("longvt_rft", tmp_path, DEVICE="gpu", MODEL_PATH=str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["framethinker", "mixed"])
def test_a_cold_start_within_a_run_is_that_of_its_own_recipe(method: str, tmp_path: Path) -> None:
    """What a user sets is meant for reinforcement learning: its learning rate would leave the model as it is."""
    meant_for_the_run = {
        **{"TRAIN_FILES": "/rl.parquet", "LEARNING_RATE": "5e-7", "TRAIN_BATCH_SIZE": "4", "MICRO_BATCH_SIZE": "1"},
        **{"TOTAL_EPOCHS": "1", "SAVE_FREQ": "5", "NNODES": "2", "EXPERIMENT_NAME": "mine", "FREEZE_VISION_TOWER": "1"},
        "NDEVICES_PER_NODE": "2",
    }
    within = recipe_arguments(f"{method}_grpo", tmp_path, DEVICE="cpu", **meant_for_the_run)
    alone = recipe_arguments(f"{method}_sft", tmp_path, DEVICE="cpu")
    assert within == alone[:-1]  # but for the last: our own option, which is the run's


@pytest.mark.parametrize(
    ("variables", "micro"),
    [
        ({"DEVICE": "gpu", "NDEVICES_PER_NODE": "2"}, 4),
        ({"DEVICE": "gpu", "NDEVICES_PER_NODE": "4", "TRAIN_BATCH_SIZE": "16"}, 4),
        ({"DEVICE": "gpu", "NDEVICES_PER_NODE": "2", "MICRO_BATCH_SIZE": "2"}, 2),
        ({"DEVICE": "cpu", "NDEVICES_PER_NODE": "2"}, 8),
    ],
)
def test_a_synthetic_cold_start_divides_its_batch_by_its_devices(
    variables: dict[str, str], micro: int, tmp_path: Path
) -> None:
    """verl wants the rows of a device to be a whole number of micro-batches."""
    arguments = recipe_arguments("framethinker_sft", tmp_path, SYNTHETIC="1", **variables)
    assert f"data.micro_batch_size_per_gpu={micro}" in arguments


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sft_recipes())
def test_fine_tuning_saves_on_its_way(recipe: str, composed: Composed) -> None:
    trainer = composed(recipe, "gpu").trainer
    assert trainer.save_freq == {"longvt_sft": 500}.get(recipe, 100)
    assert trainer.max_ckpt_to_keep == 2  # with 1, a kill in the middle of saving loses all


def test_longvts_cold_start_ends_with_its_steps_or_its_epochs(tmp_path: Path) -> None:
    """3,000 steps on the published rows, and no hundreds of epochs of a few hundred own rows."""
    arguments = recipe_arguments("longvt_sft", tmp_path, **SETTINGS["gpu"])
    assert {"trainer.total_epochs=3", "trainer.total_training_steps=3000"} <= set(arguments)


def test_on_the_cpu_a_run_starts_a_ray_of_its_own(composed: Composed) -> None:
    """Without `local`, Ray takes the address that a killed `ray start` left, and refuses to count CPUs."""
    init = composed("framethinker_grpo", "cpu").ray_kwargs.ray_init
    assert (init.address, init.num_cpus, init.num_gpus) == ("local", 32, 1)


def test_a_cluster_is_joined_with_the_variables_that_workers_need(tmp_path: Path) -> None:
    """Ray refuses `num_cpus` of a cluster that exists; workers on other nodes know nothing of the recipe's shell."""
    variables = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "PYTHONPATH": "/plug ins:/it's here",
        "VVT_FRAME_CACHE_BYTES": "1000",
        "VVT_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "VLLM_HOST_IP": "10.0.0.1",
        "SWANLAB_MODE": "offline",
        "SWANLAB_API_KEY": "secret",
        "UNRELATED": "1",
    }
    init = recipe_config("framethinker_grpo", tmp_path, DEVICE="cpu", **variables).ray_kwargs.ray_init
    assert init.num_cpus is None and "num_gpus" not in init and "include_dashboard" not in init
    passed = dict(init.runtime_env.env_vars)
    assert {name: passed.get(name) for name in variables} == {
        **dict.fromkeys(variables),
        "PYTHONPATH": "/plug ins:/it's here",
        "VVT_FRAME_CACHE_BYTES": "1000",
        "SWANLAB_MODE": "offline",
    }
    assert (passed["VERL_PLATFORM"], passed["OMP_NUM_THREADS"], passed["TORCHDYNAMO_DISABLE"]) == ("cpu", "1", "1")
    assert passed["VERL_FILE_LOGGER_PATH"].startswith(str(tmp_path)), "the logger runs in a worker, too"
    of_trackers = {"TENSORBOARD_DIR": "tensorboard", "WANDB_DIR": "", "SWANLAB_LOG_DIR": "swanlog"}
    run_dir = tmp_path / "framethinker_grpo"
    assert {name: passed[name] for name in of_trackers} == {
        name: str(run_dir / place) for name, place in of_trackers.items()
    }, "a worker's folder goes away with the job"
    assert passed["VERL_DATAPROTO_SERIALIZATION_METHOD"] == "numpy", "sender and receiver have to agree"


@pytest.mark.parametrize(
    ("recipe", "variable", "folder"),
    [
        ("longvt_grpo", "OUTPUT_DIR", "outputs/longvt_grpo"),
        ("longvt_grpo", "RUN_DIR", "outputs"),
        ("longvt_sft", "OUTPUT_DIR", "outputs/longvt_sft"),
        ("longvt_sft", "SFT_DIR", "outputs"),
    ],
)
def test_a_runs_folder_is_a_path_from_the_root(recipe: str, variable: str, folder: str, tmp_path: Path) -> None:
    """verl's trainer runs in the folder of `ray start`: checkpoints would lie there, and none be found to export."""
    (tmp_path / "config.json").write_text("{}")
    files = {"MODEL_PATH": str(tmp_path), "TRAIN_FILES": "rows.parquet", "MM_CACHE_GB": "4"}
    arguments = recipe_arguments(recipe, tmp_path, **{"DEVICE": "gpu", **files, variable: "outputs"})
    assert f"trainer.default_local_dir='{tmp_path / folder}'" in arguments


@pytest.mark.parametrize("recipe", ["longvt_grpo", "longvt_sft"])
def test_files_are_paths_from_the_root_and_names_of_the_hub_stay(recipe: str, tmp_path: Path) -> None:
    """Workers of a Ray cluster run in other folders."""
    (tmp_path / "my model").mkdir()
    (tmp_path / "rows.parquet").touch()
    option = "model.path" if recipe.endswith("sft") else "actor_rollout_ref.model.path"
    for model, expected in (("my model", tmp_path / "my model"), ("Qwen/Qwen2.5-VL-7B-Instruct",) * 2):
        files = {"MODEL_PATH": model, "TRAIN_FILES": "rows.parquet", "VAL_FILES": "[rows.parquet]", "MM_CACHE_GB": "4"}
        arguments = recipe_arguments(recipe, tmp_path, DEVICE="gpu", **files)
        assert {f"{option}='{expected}'", f"data.train_files='{tmp_path}/rows.parquet'"} <= set(arguments)


@pytest.mark.parametrize(
    ("recipe", "variables", "reason"),
    [
        ("longvt_grpo", {"LOGGER": "wandb"}, r"LOGGER must be a list such as .*, got 'wandb'"),
        ("longvt_sft", {"NNODES": "2"}, "with NNODES=2 start this on every node, with its NODE_RANK"),
        ("longvt_sft", {"NNODES": "2", "NODE_RANK": "0"}, "and node 0's MASTER_ADDR"),
    ],
)
def test_variables_that_are_missing_or_wrong(
    recipe: str, variables: dict[str, str], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=reason):
        recipe_arguments(recipe, tmp_path, DEVICE="gpu", TRAIN_FILES="rows.parquet", MM_CACHE_GB="4", **variables)


@pytest.mark.parametrize(
    ("address", "num_gpus", "device", "expected"),
    [
        ("auto", 0, "", "set DEVICE=gpu or DEVICE=cpu"),
        ("auto", 0, "gpu", "gpu"),
        ("auto", 0, "cpu", "cpu"),
        ("auto", 1, "", "gpu"),
        ("local", 0, "", "cpu"),
        ("", 0, "", "cpu"),
    ],
)
def test_a_node_without_a_gpu_does_not_decide_for_a_cluster(
    address: str, num_gpus: int, device: str, expected: str, tmp_path: Path
) -> None:
    """The synthetic world would train there instead of the user's rows."""
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nexit {1 - num_gpus}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    shell = subprocess.run(
        ["bash", "-c", f'METHOD=longvt; source "{RECIPES}/common.sh"; echo "$DEVICE"'],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_ADDRESS": address, "DEVICE": device, "PYTHON": "python"},
        capture_output=True,
        text=True,
    )
    assert shell.returncode == (0 if len(expected) == 3 else 2)
    assert (shell.stdout + shell.stderr).strip().endswith(expected)


def test_a_rehearsal_does_not_go_on_from_other_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("5")
    with pytest.raises(AssertionError, match="holds checkpoints, from which a rehearsal would resume"):
        recipe_arguments("longvt_grpo", tmp_path, DEVICE="cpu", REHEARSE="1", RUN_DIR=str(tmp_path))


@pytest.mark.parametrize("recipe", sft_recipes())
def test_a_cold_start_alone_is_not_rehearsed(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match=r"rehearses reinforcement learning: REHEARSE=1 bash recipes/\w+_grpo\.sh"):
        recipe_arguments(recipe, tmp_path, DEVICE="cpu", REHEARSE="1", MODEL_PATH=str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["framethinker_grpo", "framethinker_sft"])
@pytest.mark.parametrize(
    ("logger", "expected"),
    [
        (None, '["console","file"]'),
        ('["console","wandb"]', '["console","wandb","file"]'),
        ('["file","console"]', '["file","console"]'),
    ],
)
def test_verls_log_always_goes_to_a_file_too(recipe: str, logger: str | None, expected: str, tmp_path: Path) -> None:
    variables = {} if logger is None else {"LOGGER": logger}
    (tmp_path / "config.json").write_text("{}")
    arguments = recipe_arguments(recipe, tmp_path, DEVICE="cpu", MODEL_PATH=str(tmp_path), **variables)
    assert f"trainer.logger={expected}" in arguments


def test_loaders_of_a_cold_start_fit_into_shared_memory(tmp_path: Path) -> None:
    def num_workers(recipe: str, **environment: str) -> int:
        variables = {**SETTINGS["gpu"], "MODEL_PATH": str(tmp_path)}
        given = dict(
            argument.split("=", 1) for argument in recipe_arguments(recipe, tmp_path, **variables, **environment)
        )
        workers, batch_size = int(given["data.num_workers"]), int(given["data.train_batch_size"])
        sequences = 16 // int(given["engine.ulysses_sequence_parallel_size"])
        bytes_per_worker = 8 * 2 * batch_size // sequences * int(given["data.max_length"]) * 3072
        gigabytes = float(environment.get("LOADER_GB", 16))
        assert workers == 1 or "NUM_WORKERS" in environment or workers * bytes_per_worker <= gigabytes * 1e9
        return workers

    # Two nodes of eight devices, two batches ready for each worker.
    assert num_workers("framethinker_sft") == 8
    assert num_workers("longvt_sft") == 1, "eight rows of up to 176 MB to two devices that share sequences"
    assert num_workers("longvt_sft", LOADER_GB="64") == 2
    assert num_workers("longvt_sft", LOADER_GB="64", ULYSSES="1") == 5
    assert num_workers("longvt_sft", NUM_WORKERS="3", LOADER_GB="64") == 3


@pytest.mark.slow
def test_the_processor_cache_holds_the_rollouts_under_way(tmp_path: Path) -> None:
    def cache_gb(recipe: str, folder: str, **environment: str) -> str:
        (tmp_path / folder).mkdir()
        variables = {**SETTINGS["gpu"], "MM_CACHE_GB": "", "MODEL_PATH": "Qwen/Qwen2.5-VL-7B-Instruct"} | environment
        name = "+actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb="
        found = [text for text in recipe_arguments(recipe, tmp_path / folder, **variables) if text.startswith(name)]
        return found[0].removeprefix(name)

    assert int(cache_gb("videozoomer_grpo", "planned", NNODES="1")) > int(cache_gb("videozoomer_grpo", "two")) > 4
    assert int(cache_gb("mixed_grpo", "mixed")) >= 4
    one = {"NNODES": "1", "NDEVICES_PER_NODE": "1", "ULYSSES": "1"}  # the plan of the method's own 2 refuses one GPU
    assert int(cache_gb("videozoomer_grpo", "one", **one)) > 4
    large = tmp_path / "large.yaml"
    default = files("verl_video_tools.methods.compose").joinpath("default.yaml").read_text(encoding="utf-8")
    large.write_text(
        default.replace("num_frames: 32, min_pixels: 784, max_pixels: 50176", "num_frames: 12, max_pixels: 401408")
    )
    compose = {"COMPOSE": str(large), "TRAIN_BATCH_SIZE": "512"}
    whole = int(cache_gb("compose_grpo", "compose", **compose))
    assert whole > int(cache_gb("compose_grpo", "smaller", **compose, MAX_PIXELS="100352")), "the run's own bounds"
    assert cache_gb("longvt_grpo", "own", MM_CACHE_GB="7") == "7"
    assert cache_gb("longvt_grpo", "unknown", MODEL_PATH="nobody/no-model") == "4", "vLLM's default"
