"""The stand-in for flash-attn: packed sequences, also over two ranks, against the same ones padded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForImageTextToText
from transformers.monkey_patching import get_patch_mapping

from examples.tiny_models.tiny_model import ARCHITECTURES, Architecture
from tests.verl_plugin.harness import model_dir
from tests.verl_plugin.ranks import run_ranks
from verl_video_tools.verl_plugin.platforms import cpu_attention

Found = dict[str, dict[str, Any]]
LINEAR_TOO: tuple[Architecture, ...] = ("qwen3_5", "qwen3_5_moe")
SOFTMAX_ALONE = tuple(family for family in ARCHITECTURES if family not in LINEAR_TOO)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Architecture, str], Found]:
    """Function: what two ranks computed (`tests.verl_plugin.packing`) with text and pictures; each is run once."""

    @cache
    def run(family: Architecture, dtype: str) -> Found:
        folder = tmp_path_factory.mktemp(family)
        run_ranks("tests.verl_plugin.packing", 2, model_dir(family), str(folder), dtype, timeout_seconds=280)
        values: Found = torch.load(folder / "found.pt")
        return values

    return run


def relative_error(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / one.norm().clamp(min=1e-12))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ARCHITECTURES)
def test_the_engine_computes_what_transformers_does(
    family: Architecture, found: Callable[[Architecture, str], Found]
) -> None:
    """Log-probabilities of four dialogues with pictures: padded in the engine, one at a time in transformers."""
    values = found(family, "fp32")
    expected = values["transformers"]["log_probs"]
    assert len(expected) > 300
    torch.testing.assert_close(values["padded"]["log_probs"], expected, rtol=0, atol=1e-5)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["packed", "packed, one by one", "ulysses", "ulysses, one by one"])
@pytest.mark.parametrize("family", SOFTMAX_ALONE)
def test_packed_sequences_equal_padded_ones(
    family: Architecture, how: str, found: Callable[[Architecture, str], Found]
) -> None:
    """Log-probabilities and entropies of four dialogues with pictures, and the gradient of every weight, the vision
    tower's too."""
    values = found(family, "fp32")
    padded, packed = values["padded"], values[how]
    assert padded.keys() == packed.keys()
    assert any("visual." in name for name in padded) and len(padded["log_probs"]) > 300
    for name in ("log_probs", "entropy"):
        torch.testing.assert_close(packed[name], padded[name], rtol=0, atol=1e-5)
    errors = {name: relative_error(padded[name], packed[name]) for name in padded}
    assert max(errors.values()) <= 1e-5, errors


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", LINEAR_TOO)
def test_linear_attention_leaks_between_packed_sequences(
    family: Architecture, found: Callable[[Architecture, str], Found]
) -> None:
    """Why a run with packed sequences is refused (`run_checks.check_family`). One sequence at a time is right. Ulysses
    needs flash-linear-attention."""
    values = found(family, "fp32")
    padded, packed, alone = (values[how]["log_probs"] for how in ("padded", "packed", "packed, one by one"))
    torch.testing.assert_close(alone, padded, rtol=0, atol=1e-5)
    assert (packed - padded).abs().max() > 0.01
    assert "fla" in values["ulysses"]["failed"]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_fused_kernels_lose_gradients_of_the_head_for_qwen3(found: Callable[[Architecture, str], Found]) -> None:
    """Why docs/memory.md leaves them off: with verl 0.9.1 each rank's part of the head has the gradient of that rank's
    tokens alone. All else agrees."""
    values = found("qwen3_vl", "fp32")
    plain, fused = values["ulysses"], values["fused"]
    assert plain.keys() == fused.keys()
    for name in ("log_probs", "entropy"):
        torch.testing.assert_close(fused[name], plain[name], rtol=0, atol=1e-5)
    errors = {name: relative_error(plain[name], fused[name]) for name in plain}
    assert errors.pop("lm_head.weight") > 0.01
    assert max(errors.values()) <= 1e-5, errors


@pytest.mark.long
@pytest.mark.timeout(300)
def test_fused_kernels_fail_for_qwen2_5(found: Callable[[Architecture, str], Found]) -> None:
    """Likewise: it multiplies by the head's weight as FSDP2 divides it."""
    assert "mixed torch.Tensor and DTensor" in found("qwen2_5_vl", "fp32")["fused"]["failed"]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["packed", "ulysses"])
def test_in_bfloat16_they_differ_by_rounding(how: str, found: Callable[[Architecture, str], Found]) -> None:
    """By no more than twice what bfloat16 makes of the padded ones."""
    exact, rounded = found("qwen2_5_vl", "fp32")["padded"], found("qwen2_5_vl", "bf16")
    rounding = (rounded["padded"]["log_probs"] - exact["log_probs"]).abs().mean()
    difference = (rounded[how]["log_probs"] - rounded["padded"]["log_probs"]).abs().mean()
    assert 0 < rounding < 0.05
    assert difference <= 2 * rounding


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_key_heads", [4, 2])
def test_no_sequence_attends_to_another(causal: bool, num_key_heads: int) -> None:
    """Against one attention over everything whose mask is block-diagonal; forward pass and gradients."""
    lengths = torch.tensor([5, 1, 9])
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    generator = torch.Generator().manual_seed(0)
    total = int(lengths.sum())
    qkv = [
        torch.randn(total, heads, 8, generator=generator, requires_grad=True)
        for heads in (4, num_key_heads, num_key_heads)
    ]
    owner = torch.arange(3).repeat_interleave(lengths)
    mask = owner[:, None] == owner[None]
    if causal:
        mask = mask.tril()
    expected = scaled_dot_product_attention(
        *(values.transpose(0, 1)[None] for values in qkv), attn_mask=mask, scale=0.3, enable_gqa=True
    )[0].transpose(0, 1)
    packed = cpu_attention.flash_attn_varlen_func(*qkv, ends, ends, softmax_scale=0.3, causal=causal)
    torch.testing.assert_close(packed, expected, rtol=0, atol=1e-6)
    weights = torch.randn(packed.shape, generator=generator)
    for one, other in zip(
        torch.autograd.grad((packed * weights).sum(), qkv),
        torch.autograd.grad((expected * weights).sum(), qkv),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_a_sliding_window_is_refused() -> None:
    tokens, ends = torch.zeros(3, 1, 8), torch.tensor([0, 3])
    with pytest.raises(NotImplementedError, match="no sliding window"):
        cpu_attention.flash_attn_varlen_func(tokens, tokens, tokens, ends, ends, window_size=(1, 1))


@torch.no_grad()
def test_other_attention_stays_as_it_was() -> None:
    """A model that does not ask for the stand-in computes the same bits after it has been registered."""
    ids = torch.arange(20, 60)[None]

    def logits() -> torch.Tensor:
        model = AutoModelForImageTextToText.from_pretrained(model_dir(), attn_implementation="sdpa")
        output: torch.Tensor = model.eval()(input_ids=ids, use_cache=False).logits
        return output

    before = logits()
    cpu_attention.register()
    assert torch.equal(logits(), before)
    assert get_patch_mapping() == {}, "every load would look through all modules of transformers"
