"""What an adapter of the recipes reaches in each family, and what verl sends of a mixture of experts that has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForImageTextToText
from verl.utils.fsdp_utils import apply_fsdp2
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from examples.tiny_models.tiny_model import Architecture
from tests.verl_plugin.harness import model_dir

ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
LINEAR_ATTENTION = {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"}
MLP = {"gate_proj", "up_proj", "down_proj"}


def adapted(family: Architecture) -> Any:
    """With the adapter of the groups `lora`."""
    model = AutoModelForImageTextToText.from_pretrained(model_dir(family), dtype=torch.float32)
    return get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", exclude_modules=".*visual.*"))


@pytest.mark.parametrize(
    ("family", "layers"),
    [
        ("qwen2_5_vl", ATTENTION | MLP),
        ("qwen3_vl", ATTENTION | MLP),
        ("qwen3_vl_moe", ATTENTION),  # all its MLPs are experts
        ("qwen3_5", ATTENTION | LINEAR_ATTENTION | MLP),
        ("qwen3_5_moe", ATTENTION | LINEAR_ATTENTION | MLP | {"shared_expert_gate"}),  # MLP of the shared expert
    ],
)
def test_an_adapter_reaches_linear_layers_and_no_routed_expert(family: Architecture, layers: set[str]) -> None:
    names = [name.partition(".lora_A")[0] for name, _ in adapted(family).named_parameters() if "lora_A" in name]
    assert {name.rpartition(".")[2] for name in names} == layers
    assert not [name for name in names if ".experts" in name or "visual" in name]


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("family", ["qwen3_vl_moe", "qwen3_5_moe"])
def test_verl_sends_merged_experts_as_transformers_holds_them(
    family: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why `run_checks.check_family` refuses `lora.merge` with Qwen3-VL's mixture: vLLM transposes its experts, as the
    files of a model have them. It reads those of Qwen3.5 as they are sent."""
    # verl asks CUDA, which the process of the tests may lack.
    monkeypatch.setattr(transformer_impl, "get_device_id", lambda: "cpu")
    monkeypatch.setattr(transformer_impl, "log_gpu_memory_usage", lambda *_, **__: None)
    model = adapted(family)
    apply_fsdp2(model, {"mesh": init_device_mesh("cpu", (1,))}, OmegaConf.create({}))
    engine: Any = SimpleNamespace(module=model, _is_offload_param=False)
    sent = dict(FSDPEngine._merged_lora_per_tensor_param(engine))
    name = "model.language_model.layers.0.mlp.experts.gate_up_proj"
    experts, gate_and_up, hidden = sent[name].shape
    assert (experts, gate_and_up, hidden) == (4, 2 * 96, 128)
    if family == "qwen3_vl_moe":
        in_file = load_file(Path(model_dir(family)) / "model.safetensors")[name]
        assert in_file.shape == (experts, hidden, gate_and_up)
