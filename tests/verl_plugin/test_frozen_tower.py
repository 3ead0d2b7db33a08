"""The vision tower that stays as it is: which weights that are, what trains, what is saved, resumed and sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForImageTextToText
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from examples.tiny_models.tiny_model import ARCHITECTURES, Architecture
from tests.verl_plugin.harness import model_dir
from tests.verl_plugin.ranks import run_ranks
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.export_model import export_model
from verl_video_tools.verl_plugin.fsdp_engine import (
    AcceleratorEngine,
    CpuEngine,
    FrozenTowerConfig,
    VideoToolsEngine,
    vision_tower,
)
from verl_video_tools.verl_plugin.settings import FROZEN_TOWER_CONFIG, honour_freeze_vision_tower

# ------------------------------------------------------------------------------------------------ two ranks, two steps


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Architecture], dict[str, Any]]:
    """Function: what two ranks with offloading found (`tests.verl_plugin.training`); each family is run once."""

    @cache
    def run(family: Architecture) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(family)
        run_ranks("tests.verl_plugin.training", 2, str(model_dir(family)), str(folder), timeout_seconds=200)
        found: dict[str, Any] = json.loads((folder / "found.json").read_text())
        return found | {"folder": folder}

    return run


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_only_the_rest_trains(family: Architecture, trained: Callable[[Architecture], dict[str, Any]]) -> None:
    found = trained(family)
    assert found["engine"] == "CpuEngine"
    assert found["tower"] and found["others"]
    assert sorted(found["moved"]) == sorted(found["others"])
    assert sorted(found["moved_without_the_option"]) == sorted(found["tower"] + found["others"])


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("family", ARCHITECTURES)
@pytest.mark.parametrize("held", ["with_gradient", "with_state", "given_to_the_optimiser"])
def test_frozen_weights_carry_nothing(
    family: Architecture, held: str, trained: Callable[[Architecture], dict[str, Any]]
) -> None:
    found = trained(family)
    assert sorted(found[held]) == sorted(found["others"])


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(
    family: Architecture, trained: Callable[[Architecture], dict[str, Any]]
) -> None:
    assert trained(family)["differ_after_resuming"] == []


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_vllm_is_sent_all_weights(family: Architecture, trained: Callable[[Architecture], dict[str, Any]]) -> None:
    assert trained(family)["sent_otherwise_than_held"] == []


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_an_exported_checkpoint_has_the_layout_of_the_model_and_the_weights_that_trained(
    family: Architecture, trained: Callable[[Architecture], dict[str, Any]]
) -> None:
    """verl's merger rounds to bfloat16. The names and shapes of the files are those that vLLM reads."""
    folder: Path = trained(family)["folder"]
    (folder / "run" / "latest_checkpointed_iteration.txt").write_text("1")
    export_model(folder / "run", folder / "exported")

    def layout(model: Path) -> dict[str, torch.Size]:
        return {name: weight.shape for name, weight in load_file(model / "model.safetensors").items()}

    assert layout(folder / "exported") == layout(Path(model_dir(family)))
    saved = torch.load(folder / "saved.pt")
    model = AutoModelForImageTextToText.from_pretrained(folder / "exported", dtype=torch.float32)
    weights = dict(model.named_parameters())
    assert weights.keys() == saved.keys()
    assert [name for name, weight in weights.items() if not torch.equal(weight, saved[name].bfloat16().float())] == []


# ----------------------------------------------------------------------------------------- one step, without any ranks


class Model(torch.nn.Module):
    """A tower and the rest, of one weight each beside their biases."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.ModuleDict({"visual": torch.nn.Linear(2, 2), "language_model": torch.nn.Linear(2, 2)})

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model["language_model"](self.model["visual"](values))
        return result


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_the_optimiser_is_given_what_trains(
    monkeypatch: pytest.MonkeyPatch, device: Callable[[str, str], None], frozen: bool, optimizer: str
) -> None:
    """Not even weight decay moves the tower. Two ranks show the same of a whole engine (above)."""
    device("cpu", "cpu")
    monkeypatch.setattr(FSDPEngineWithLMHead, "_build_fsdp_module", lambda self, module: module)  # shards it
    engine = CpuEngine.__new__(CpuEngine)
    engine.model_config = SimpleNamespace(use_fused_kernels=False)
    engine.engine_config = (FrozenTowerConfig if frozen else FSDPEngineConfig)(strategy="fsdp2")
    engine.optimizer_config = FSDPOptimizerConfig(optimizer=optimizer, lr=0.5, weight_decay=0.5, total_training_steps=1)
    engine.rank = 0
    module = engine._build_fsdp_module(Model())
    built = engine._build_optimizer(module)
    names = {weight: name for name, weight in module.named_parameters()}
    given = [names[weight] for group in built.param_groups for weight in group["params"]]
    trained = [name for name in names.values() if not (frozen and "visual" in name)]
    assert given == trained and len(trained) == (2 if frozen else 4)
    before = {name: weight.detach().clone() for weight, name in names.items()}
    module(torch.ones(1, 2)).sum().backward()
    built.step()
    assert [name for weight, name in names.items() if not torch.equal(weight, before[name])] == trained
    assert [name for weight, name in names.items() if weight.grad is not None] == trained


# --------------------------------------------------------------------------------------------------- what is the tower


@pytest.mark.parametrize(
    ("family", "parts"),
    [
        ("qwen2_vl", {"patch_embed", "blocks", "merger"}),
        ("qwen2_5_vl", {"patch_embed", "blocks", "merger"}),
        ("qwen3_vl", {"patch_embed", "pos_embed", "blocks", "merger", "deepstack_merger_list"}),
        ("qwen3_vl_moe", {"patch_embed", "pos_embed", "blocks", "merger", "deepstack_merger_list"}),
        ("qwen3_5", {"patch_embed", "pos_embed", "blocks", "merger"}),
        ("qwen3_5_moe", {"patch_embed", "pos_embed", "blocks", "merger"}),
    ],
)
def test_the_tower_ends_where_the_language_model_begins(family: str, parts: set[str]) -> None:
    """Merger and DeepStack's mergers are parts of it, as in the published code of VideoBrain and VideoZoomer."""
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.device("meta"):
        config = AutoConfig.for_model(
            family, text_config={**small, "num_key_value_heads": 2}, vision_config={"depth": 1}
        )
        model = AutoModelForImageTextToText.from_config(config)
    tower = vision_tower(model)
    assert {name.partition(".")[0] for name, _ in tower.named_parameters()} == parts
    inside = {id(weight) for weight in tower.parameters()}
    outside = {name for name, weight in model.named_parameters() if id(weight) not in inside}
    assert outside and all("language_model" in name or name == "lm_head.weight" for name in outside)


def test_adapters_within_the_tower_are_parts_of_it() -> None:
    model = AutoModelForImageTextToText.from_pretrained(model_dir("qwen3_vl"))
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    names = {name for name, _ in vision_tower(adapted).named_parameters()}
    assert any("lora_A" in name for name in names)
    assert any("lora_A" in name and "visual" not in name for name, _ in adapted.named_parameters())


def test_a_model_without_a_tower_is_refused() -> None:
    with pytest.raises(UsageError, match="Linear has no vision tower named 'visual'"):
        vision_tower(torch.nn.Linear(1, 1))


# ------------------------------------------------------------------------------------------------- how it is selected


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Function: let verl look its engines up as on this device."""

    def select(name: str, vendor: str) -> None:
        monkeypatch.setenv("VERL_ENGINE_DEVICE", name)
        monkeypatch.setenv("VERL_ENGINE_VENDOR", vendor)

    return select


@pytest.fixture
def cuda(device: Callable[[str, str], None]) -> Iterator[None]:
    device("cuda", "nvidia")
    yield


@pytest.mark.parametrize(
    ("name", "vendor", "engine"),
    [
        ("cuda", "nvidia", AcceleratorEngine),
        ("cuda", "amd", AcceleratorEngine),
        ("npu", "huawei", AcceleratorEngine),
        ("cpu", "cpu", CpuEngine),
    ],
)
@pytest.mark.parametrize("backend", ["fsdp", "fsdp2"])
def test_verl_finds_the_engine_by_device_and_vendor(
    name: str, vendor: str, engine: type, backend: str, device: Callable[[str, str], None]
) -> None:
    device(name, vendor)
    assert EngineRegistry.get_engine_cls("language_model", backend) is engine
    assert FrozenTowerConfig(strategy=backend)


def test_a_device_that_it_is_not_registered_for_is_refused(device: Callable[[str, str], None]) -> None:
    device("cuda", "another")
    assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is FSDPEngineWithLMHead
    with pytest.raises(UsageError, match="verl would take FSDPEngineWithLMHead for strategy=fsdp2 on this device"):
        FrozenTowerConfig(strategy="fsdp2")


@pytest.mark.usefixtures("cuda")
def test_other_backends_are_refused() -> None:
    with pytest.raises(UsageError, match="strategy=fsdp_turbo"):
        FrozenTowerConfig(strategy="fsdp_turbo")
    engine = VideoToolsEngine.__new__(AcceleratorEngine)
    engine.engine_config = FrozenTowerConfig(strategy="fsdp")
    with pytest.raises(UsageError, match="strategy=fsdp with a frozen vision tower: FSDP1"):
        engine._build_fsdp_module(torch.nn.Linear(1, 1))


def run_config(**actor: Any) -> Any:
    engine = {"_target_": "verl.workers.config.FSDPEngineConfig"}
    return OmegaConf.create({"actor_rollout_ref": {"actor": {"fsdp_config": engine, **actor}}})


@pytest.mark.parametrize(
    ("asked", "target"), [(True, FROZEN_TOWER_CONFIG), (False, "verl.workers.config.FSDPEngineConfig")]
)
def test_the_trainers_honour_verls_own_option(asked: bool, target: str) -> None:
    config = run_config(strategy="fsdp2", freeze_vision_tower=asked)
    honour_freeze_vision_tower(config)
    assert config.actor_rollout_ref.actor.fsdp_config._target_ == target
    assert f"{FrozenTowerConfig.__module__}.{FrozenTowerConfig.__qualname__}" == FROZEN_TOWER_CONFIG
    assert issubclass(FrozenTowerConfig, FSDPEngineConfig)


@pytest.mark.parametrize("strategy", ["fsdp", "megatron", "veomni"])
def test_the_trainers_refuse_it_where_the_tower_would_train(strategy: str) -> None:
    with pytest.raises(UsageError, match=f"strategy={strategy}: the vision tower would train all the same"):
        honour_freeze_vision_tower(run_config(strategy=strategy, freeze_vision_tower=True))
