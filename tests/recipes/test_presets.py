"""PRESET: each name composes, and gives way to the environment."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import DictConfig

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import (
    RECIPES,
    compose_options,
    grpo_recipes,
    preset_names,
    recipe_arguments,
    verl_config,
)
from verl_video_tools.cli.main import run

METHODS = ("framethinker", "videozoomer", "longvt", "framemind", "videobrain")


def composed(recipe: str, preset: str, folder: Path) -> DictConfig:
    """The configuration of a recipe's real run with a preset."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    given = {"DEVICE": "gpu", "TRAIN_FILES": "train.parquet", "MM_CACHE_GB": "4", "PRESET": preset}
    given |= {"NODE_RANK": "0", "MASTER_ADDR": "node"}
    return compose_options(verl_config(recipe), recipe_arguments(recipe, folder, **given))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(set(grpo_recipes()) - {f"{method}_grpo" for method in METHODS}))
def test_other_recipes_run_on_eight_gpus_as_well(recipe: str, tmp_path: Path) -> None:
    config = composed(recipe, "7b_8x80gb", tmp_path / recipe)
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (1, 8)


@pytest.mark.slow
def test_a_cold_start_of_several_methods_is_divided_as_longvts(tmp_path: Path) -> None:
    config = composed("mixed_sft", "7b_8x80gb", tmp_path / "mixed_sft")
    assert (config.data.max_length, config.engine.ulysses_sequence_parallel_size) == (57_344, 2)


@pytest.mark.parametrize(("devices", "ulysses"), [("1", "1"), ("3", "1"), ("2", "2")])
def test_gpus_that_are_no_pairs_share_no_sequence(devices: str, ulysses: str, tmp_path: Path) -> None:
    found = values("longvt_sft", tmp_path / "run", NDEVICES_PER_NODE=devices)
    assert found["engine.ulysses_sequence_parallel_size"] == ulysses
    assert int(found["data.max_token_len_per_gpu"]) * int(ulysses) == int(found["data.max_length"])


def values(recipe: str, folder: Path, **variables: str) -> dict[str, str]:
    """What a recipe hands to verl, by name; the last of several values."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    given = {"DEVICE": "gpu", "TRAIN_FILES": "a.parquet", "MM_CACHE_GB": "4", "SFT_FILES": "c.parquet"} | variables
    return dict(argument.lstrip("+").split("=", 1) for argument in recipe_arguments(recipe, folder, **given))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_default_is_one_node_of_eight_gpus(method: str, tmp_path: Path) -> None:
    model = "8b" if method == "videobrain" else "7b"
    plain = values(f"{method}_grpo", tmp_path / "run")
    assert plain["trainer.nnodes"] == "1" and plain["trainer.n_gpus_per_node"] == "8"
    (tmp_path / "run").rename(tmp_path / "plain")
    preset = values(f"{method}_grpo", tmp_path / "run", PRESET=f"{model}_8x80gb")
    assert preset == plain


def test_every_value_can_be_set_from_outside(tmp_path: Path) -> None:
    """Each `NAME=${NAME:-default}` of every preset's files, and nothing is set in another way."""
    names: set[str] = set()
    for script in (RECIPES / "presets").rglob("*.sh"):
        for line in script.read_text().splitlines():
            for name, default in re.findall(r"\b([A-Z_]+)=(\S*)", line.partition("#")[0]):
                if name != "PRESET":
                    assert default.startswith(f"${{{name}:-"), f"{script.name}: {line}"
                    names.add(name)
    own = {"NNODES": "3", "NDEVICES_PER_NODE": "6", "TRAIN_BATCH_SIZE": "12", "ROLLOUT_N": "5", "ROLLOUT_TP": "2"}
    own |= {"LORA_RANK": "7", "LORA_ALPHA": "9", "ULYSSES": "3", "LEARNING_RATE": "4e-6", "MICRO_BATCH_SIZE": "2"}
    own |= {"MINI_BATCH_SIZE": "6", "MAX_PROMPT_LENGTH": "30000", "MAX_BATCHED_TOKENS": "9000"}
    own |= {"METHOD_FIELDS": "initial_frames=100", "CORES_PER_NODE": "12", "MODEL_PATH": "/own/model"}
    of_others = {"ACTOR_MICRO_BATCH_SIZE": "FrameMind's", "MAX_LENGTH": "of the cold start"}
    assert own.keys() | of_others.keys() == names
    found = values("longvt_grpo", tmp_path / "run", PRESET="3b_4x48gb_lora", **own)
    rollout = "actor_rollout_ref.rollout"
    expected = {
        "trainer.nnodes": "3",
        "trainer.n_gpus_per_node": "6",
        "data.train_batch_size": "12",
        f"{rollout}.n": "5",
        f"{rollout}.tensor_model_parallel_size": "2",
        "actor_rollout_ref.model.lora_rank": "7",
        "actor_rollout_ref.model.lora_alpha": "9",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size": "3",
        "actor_rollout_ref.actor.optim.lr": "4e-6",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "2",
        "actor_rollout_ref.actor.ppo_mini_batch_size": "6",
        "data.max_prompt_length": "30000",
        f"{rollout}.max_model_len": "46384",  # with the recipe's 16384 of the response
        f"{rollout}.max_num_batched_tokens": "9000",
        f"{rollout}.custom.video_tools.longvt.initial_frames": "100",
        f"{rollout}.agent.num_workers": "6",
        "actor_rollout_ref.model.path": "'/own/model'",
    }
    assert {name: found[name] for name in expected} == expected
    assert f"{rollout}.custom.video_tools.longvt.call_frames" not in found


def test_the_nodes_of_the_papers(tmp_path: Path) -> None:
    nodes = {"longvt_grpo": 8, "longvt_sft": 4, "longvt_rft": 8, "videozoomer_grpo": 2, "videozoomer_sft": 1}
    for recipe, expected in nodes.items():
        variables = {"NODE_RANK": "0", "MASTER_ADDR": "node", "PRESET": "published"}
        variables["MODEL_PATH"] = str(tmp_path / recipe)
        found = values(recipe, tmp_path / recipe, **variables)
        assert (recipe, found["trainer.nnodes"]) == (recipe, str(expected))


@pytest.mark.slow
def test_fields_of_a_preset_reach_the_cold_start_and_the_size_of_the_cache(tmp_path: Path) -> None:
    found = values("longvt_sft", tmp_path / "sft", PRESET="3b_4x48gb_lora")
    assert found["data.video_tools.longvt.initial_frames"] == "256"
    assert found["engine.ulysses_sequence_parallel_size"] == "4"
    assert found["data.max_token_len_per_gpu"] == "9216", "verl fills a batch with so many for each GPU of a sequence"
    planned = [
        values("longvt_grpo", tmp_path / str(frames), MM_CACHE_GB="", METHOD_FIELDS=f"initial_frames={frames}",
               TRAIN_BATCH_SIZE="64")["actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb"]
        for frames in (64, 512)
    ]  # fmt: skip
    assert int(planned[0]) < int(planned[1])


def test_fine_tuning_on_its_own_rollouts_starts_from_the_rl_checkpoint(tmp_path: Path) -> None:
    rl = tmp_path / "rl" / "huggingface"
    rl.mkdir(parents=True)
    (rl / "config.json").write_text("{}")
    found = values("longvt_rft", tmp_path / "run", PRESET="3b_8x80gb", RL_DIR=str(tmp_path / "rl"))
    assert found["model.path"] == f"'{rl}'"


@pytest.mark.parametrize(
    ("recipe", "preset", "message"),
    [
        ("longvt_grpo", "13b_8x80gb", r"PRESET must be one of 3b_4x48gb_lora .* published, got '13b_8x80gb'"),
        ("longvt_sft", "../models/3b", r"PRESET must be one of .*, got '\.\./models/3b'"),
        ("longvt_sft", "3b", "PRESET must be one of"),
        ("mixed_grpo", "7b_4x48gb_lora", "PRESET=7b_4x48gb_lora has no settings for several methods"),
        ("compose_grpo", "published", "no paper says on what compose, stage grpo, was trained"),
    ],
)
def test_presets_that_there_are_not(recipe: str, preset: str, message: str, tmp_path: Path) -> None:
    variables = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "DEVICE": "gpu", "OUTPUT_DIR": str(tmp_path)}
    ended = subprocess.run(
        ["bash", str(RECIPES / f"{recipe}.sh")], env=variables | {"PRESET": preset}, capture_output=True, text=True
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert re.search(message, line)


def test_the_command_line_lists_the_names_that_the_recipes_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "presets"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(preset_names())


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["7b_8x80gb", "7b_4x48gb_lora", "published"])
def test_a_rehearsal_has_of_a_preset_what_is_not_size(preset: str, tmp_path: Path) -> None:
    model = str(tmp_path / "run")
    rehearsal = values("longvt_grpo", tmp_path / "run", REHEARSE="1", DEVICE="cpu", MODEL_PATH=model, PRESET=preset)
    (tmp_path / "run").rename(tmp_path / "with preset")
    plain = values("longvt_grpo", tmp_path / "run", REHEARSE="1", DEVICE="cpu", MODEL_PATH=model)
    differing = {name for name in rehearsal.keys() | plain.keys() if rehearsal.get(name) != plain.get(name)}
    differing.discard("trainer.default_local_dir")  # has the time of its start
    lora = {name for name in differing if "model.lora" in name or "target_modules" in name or "exclude_modules" in name}
    saved = {"actor_rollout_ref.actor.checkpoint.save_contents"}
    assert differing == (lora | saved if "lora" in preset else set())
    assert rehearsal.get("actor_rollout_ref.model.lora_rank") == ("32" if "lora" in preset else None)
