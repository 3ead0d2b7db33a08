"""The precision in which pixels wait for the update: that in which the model reads them, so that no bit changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from PIL import Image
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoModelForImageTextToText
from verl.utils.fsdp_utils import apply_fsdp2

from examples.tiny_models.tiny_model import ARCHITECTURES, Architecture
from tests.verl_plugin.harness import model_dir, processor
from verl_video_tools.verl_plugin.agent_loop_worker import forward_dtype

BF16 = {"strategy": "fsdp2", "fsdp_config": {"mixed_precision": None}}  # as verl's own configuration has it
FP32 = {"strategy": "fsdp2", "fsdp_config": {"mixed_precision": {"param_dtype": "fp32"}}}
FP16 = {"strategy": "fsdp", "fsdp_config": {"mixed_precision": {"param_dtype": "fp16", "reduce_dtype": "fp32"}}}
UNSAID = {"strategy": "fsdp", "fsdp_config": {"mixed_precision": {"reduce_dtype": "fp32"}}}
MEGATRON = {"strategy": "megatron", "megatron": {"dtype": "bfloat16"}}


@pytest.mark.parametrize(
    ("actor", "ref", "expected"),
    [
        (BF16, BF16, torch.bfloat16),
        (UNSAID, BF16, torch.bfloat16),
        (FP32, FP32, torch.float32),
        (FP16, FP16, torch.float16),
        (BF16, FP32, torch.float32),
        (MEGATRON, MEGATRON, torch.float32),
    ],
)
def test_what_actor_and_reference_agree_on(
    actor: Mapping[str, Any], ref: Mapping[str, Any], expected: torch.dtype
) -> None:
    assert forward_dtype(OmegaConf.create({"actor": actor, "ref": ref})) == expected


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_fsdp_computes_the_same_from_pixels_cast_before(family: Architecture) -> None:
    """In mixed precision as verl's engine sets it up (`FSDPEngine._build_fsdp_module`)."""
    pictures = [Image.effect_noise((84, 56), 90.0).convert("RGB") for _ in range(3)]
    text = "frame <|vision_start|><|image_pad|><|vision_end|> " * len(pictures)
    inputs = dict(processor(family)(text=[text], images=pictures, return_tensors="pt"))
    model = AutoModelForImageTextToText.from_pretrained(model_dir(family), dtype=torch.float32)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)
    mesh = init_device_mesh("cpu", (1,))
    apply_fsdp2(model, {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": True}, OmegaConf.create({}))

    def logits(pixels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            found: torch.Tensor = model(**{**inputs, "pixel_values": pixels}).logits
        return found

    expected = logits(inputs["pixel_values"])
    assert inputs["pixel_values"].dtype == torch.float32 and expected.dtype == torch.bfloat16
    assert torch.equal(logits(inputs["pixel_values"].bfloat16()), expected)
    assert not torch.equal(logits(inputs["pixel_values"].flip(0)), expected)  # pixels do matter here
