"""Packed sequences without flash-attn, also over two ranks, against the same ones padded."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText
from transformers.monkey_patching import get_patch_mapping

from examples.tiny_models.tiny_model import ARCHITECTURES, Architecture
from tests.verl_plugin.harness import model_dir
from tests.verl_plugin.one_call_per_layer import TOWER_HEADS
from tests.verl_plugin.packing import FUSED, PAIRS
from tests.verl_plugin.ranks import run_ranks
from tests.verl_plugin.test_varlen_attention import check_wide_model
from tests.verl_plugin.varlen_kernel import relative_error
from verl_video_tools.verl_plugin import packed_attention

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
@pytest.mark.parametrize(
    ("family", "how"), [*product(SOFTMAX_ALONE, PAIRS), *product(LINEAR_TOO, ["padded", "each its own"])]
)
def test_fused_kernels_compute_the_same(
    family: Architecture, how: str, found: Callable[[Architecture, str], Found]
) -> None:
    """Log-probabilities, entropies and all gradients over two ranks, of which FSDP2 divides the head.

    Without `fsdp_engine.gather_head` Qwen2.5-VL fails with "mixed torch.Tensor and DTensor", and the head of Qwen3-VL
    has on each rank the gradient of that rank's tokens alone.
    """
    values = found(family, "fp32")
    plain, fused = values[how], values[how + FUSED]
    assert "failed" not in plain and plain.keys() == fused.keys()
    assert any("lora_" in name for name in plain) == ("adapter" in how)
    assert any("visual." in name for name in plain) == ("adapter" not in how and "frozen" not in how)
    for name in ("log_probs", "entropy"):
        torch.testing.assert_close(fused[name], plain[name], rtol=0, atol=1e-5)
    errors = {name: relative_error(plain[name], fused[name]) for name in plain}
    assert errors.get("lm_head.weight", 0.0) <= 1e-5
    # Linear attention amplifies rounding: its float32 sums run over all tokens.
    assert max(errors.values()) <= (1e-3 if family in LINEAR_TOO else 1e-5), errors


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


@pytest.mark.long
@pytest.mark.timeout(2500)
@pytest.mark.skipif("VVT_TEST_DEADLINE" in os.environ, reason="a quarter of an hour and more for each family")
@pytest.mark.parametrize("family", TOWER_HEADS)
def test_a_model_as_wide_as_a_released_one_is_that_of_unpacked_sequences(family: str, tmp_path: Path) -> None:
    """8,000 tokens with pictures: forward and backward pass."""
    assert check_wide_model(family, "released", 8000, tmp_path)["peak_gb"] <= 18


@torch.no_grad()
def test_other_attention_stays_as_it_was() -> None:
    """A model that does not ask for the stand-in computes the same bits after it has been registered."""
    ids = torch.arange(20, 60)[None]

    def logits() -> torch.Tensor:
        model = AutoModelForImageTextToText.from_pretrained(model_dir(), attn_implementation="sdpa")
        output: torch.Tensor = model.eval()(input_ids=ids, use_cache=False).logits
        return output

    before = logits()
    packed_attention.register()
    assert torch.equal(logits(), before)
    assert get_patch_mapping() == {}, "every load would look through all modules of transformers"
