"""What a preset makes of a recipe, and its plan: for the tests, and for docs/make_presets.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from omegaconf import DictConfig

from tests.recipes.options import RECIPES, compose_options, recipe_arguments, verl_config
from verl_video_tools.core.types import Method, VideoInfo
from verl_video_tools.planner.composed import run_options
from verl_video_tools.planner.constants import GB, find_gpu
from verl_video_tools.planner.gpu_memory import ActorMemory, actor_memory
from verl_video_tools.planner.models import find_model
from verl_video_tools.planner.plan import Cluster, Plan, make_plan
from verl_video_tools.planner.workload import estimated_tokens, plan_workload
from verl_video_tools.verl_plugin.settings import method_from_config

HOUR = VideoInfo(3600.0, 108_000, 30.0, 1920, 1080)
METHODS = ("framethinker", "videozoomer", "longvt", "framemind", "videobrain")
MODELS = {"3b": "qwen2.5-vl-3b", "7b": "qwen2.5-vl-7b", "8b": "qwen3-vl-8b"}
PUBLISHED = "published"


@dataclass(frozen=True)
class Node:
    """What a node of a preset's name is taken to have."""

    gpu: str
    num_gpus: int
    host_gb: float
    cores: int


NODES = {"8x80gb": Node("h100", 8, 1024, 96), "4x48gb_lora": Node("l40s", 4, 256, 32)}
"""By machine."""
SMALL_CARD = Node("rtx-4090", 1, 128, 16)


def preset_names() -> Iterator[str]:
    """As the folder of presets has them."""
    folder = RECIPES / "presets"
    machines = sorted(path.stem for path in (folder / "machines").glob("*.sh"))
    yield from (f"{model.stem}_{machine}" for model in sorted((folder / "models").glob("*.sh")) for machine in machines)
    yield from sorted(path.stem for path in folder.glob("*.sh"))


def machine_of(preset: str) -> str:
    return "8x80gb" if preset == PUBLISHED else preset.partition("_")[2]


def models_of(method: str, preset: str) -> list[str]:
    """Names of models that the planner knows: of a preset, or those that a paper trained."""
    if preset == PUBLISHED:
        return ["qwen3-vl-8b" if method == "videobrain" else "qwen2.5-vl-7b"]
    return [MODELS[preset.partition("_")[0]]]


def composed(recipe: str, preset: str, folder: Path, **variables: str) -> DictConfig:
    """The configuration of a recipe's real run with a preset."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    given = {"DEVICE": "gpu", "TRAIN_FILES": "train.parquet", "MM_CACHE_GB": "4", "PRESET": preset}
    given |= {"NODE_RANK": "0", "MASTER_ADDR": "node"} | variables
    return compose_options(verl_config(recipe), recipe_arguments(recipe, folder, **given))


@dataclass(frozen=True)
class Planner:
    """Plans of recipes with presets; each recipe is composed once per machine, since a model changes its path alone."""

    grpo: Callable[[str, str], DictConfig]
    sft: Callable[[str, str], DictConfig]

    @classmethod
    def in_folder(cls, folder: Path) -> Planner:
        def config(stage: str) -> Callable[[str, str], DictConfig]:
            return cache(
                lambda method, machine: composed(
                    f"{method}_{stage}",
                    machine if machine == PUBLISHED else f"7b_{machine}",
                    folder / f"{method}_{stage}_{machine}",
                )
            )

        return cls(config("grpo"), config("sft"))

    def plan(self, method: str, preset: str, model: str) -> Plan:
        """Of reinforcement learning on videos of an hour."""
        machine = preset if preset == PUBLISHED else machine_of(preset)
        return plan_of(self.grpo(method, machine), method, NODES[machine_of(preset)], model)

    def on_one_card(self, method: str) -> Plan:
        """Of the smallest model with an adapter on one GPU of 24 GB, which holds each sequence alone."""
        config = self.grpo(method, "4x48gb_lora").copy()
        config.trainer.n_gpus_per_node = 1
        config.actor_rollout_ref.actor.ulysses_sequence_parallel_size = 1
        return plan_of(config, method, SMALL_CARD, MODELS["3b"])

    def cold_start(self, method: str, preset: str, model: str) -> ActorMemory:
        """Memory of a GPU in fine-tuning, for a row as long as the recipe allows."""
        machine = preset if preset == PUBLISHED else machine_of(preset)
        config = self.sft(method, machine)
        num_gpus = config.trainer.nnodes * config.trainer.n_gpus_per_node
        shape = find_model(model)
        options = replace(
            run_options(self.grpo(method, machine)),
            micro_batch_size=config.data.micro_batch_size_per_gpu,
            ulysses=config.engine.ulysses_sequence_parallel_size,
            lora_rank=config.model.lora_rank,
            freeze_vision="frozen_tower" in config.engine._target_,
            reference=False,
            entropy=False,
        )
        work = plan_workload(
            method_of(self.grpo(method, machine), method), HOUR, estimated_tokens(shape.factor, options), options
        )
        return actor_memory(shape, options, work, num_gpus, config.data.max_length)


def method_of(config: DictConfig, method: str) -> Method:
    return method_from_config(method, config.actor_rollout_ref.rollout)


def plan_of(config: DictConfig, method: str, node: Node, model: str) -> Plan:
    """Of a composed GRPO run, on as many of these nodes as it asks for."""
    gpus_per_node = config.trainer.n_gpus_per_node
    cluster = Cluster(
        gpu=find_gpu(node.gpu),
        num_gpus=config.trainer.nnodes * gpus_per_node,
        gpus_per_node=gpus_per_node,
        host_bytes=node.host_gb * GB,
        cores_per_node=node.cores,
    )
    options, shape = run_options(config), find_model(model)
    tokens = estimated_tokens(shape.factor, options)
    return make_plan(method_of(config, method), HOUR, shape, tokens, options, cluster)
