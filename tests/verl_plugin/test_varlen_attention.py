"""Attention of packed sequences by torch's kernel: its double on CPUs, against attention of each sequence alone."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig

from examples.tiny_models.tiny_model import Architecture
from tests.verl_plugin.harness import model_dir
from tests.verl_plugin.one_call_per_layer import LAYERS, MICRO_BATCHES, TOWER_HEADS, make_model_with_released_heads
from tests.verl_plugin.ranks import run_apart, run_ranks
from tests.verl_plugin.varlen_kernel import kernel_on_cpus, relative_error
from verl_video_tools.verl_plugin import packed_attention, varlen

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Architecture], Found]:
    """Function: what `one_call_per_layer` found with a family; each is run once."""

    @cache
    def run(family: Architecture) -> Found:
        folder = tmp_path_factory.mktemp(family)
        make_model_with_released_heads(Path(model_dir(family)), family, folder / "model")
        run_ranks("tests.verl_plugin.one_call_per_layer", 1, str(folder / "model"), str(folder), timeout_seconds=280)
        values: Found = torch.load(folder / "found.pt")
        return values

    return run


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", MICRO_BATCHES)
@pytest.mark.parametrize("family", TOWER_HEADS)
def test_the_engine_computes_what_unpacked_attention_does(
    family: Architecture, how: str, found: Callable[[Architecture], Found]
) -> None:
    """Log-probabilities and entropies of four dialogues with pictures, and all gradients, within the rounding of
    bfloat16: grouped queries, heads of 128, 80 and 72."""
    unpacked, packed = found(family)["unpacked"], found(family)[how]
    assert any("visual." in name for name in unpacked) and len(unpacked["log_probs"]) > 300
    for name in ("log_probs", "entropy"):
        torch.testing.assert_close(packed[name], unpacked[name], rtol=0, atol=2e-3)
    errors = {name: relative_error(values, packed[name]) for name, values in unpacked.items()}
    assert max(errors.values()) <= 5e-3, errors


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", MICRO_BATCHES)
@pytest.mark.parametrize("family", TOWER_HEADS)
def test_each_layer_calls_the_kernel_once(
    family: Architecture, how: str, found: Callable[[Architecture], Found]
) -> None:
    """For all windows of all pictures, and for all dialogues. A run has two forward passes and recomputes one."""
    config = AutoConfig.from_pretrained(model_dir(family))
    layers = LAYERS + config.vision_config.depth
    values = found(family)[how]
    assert values["forward calls"] == 3 * layers * MICRO_BATCHES[how]
    assert values["backward calls"] == layers * MICRO_BATCHES[how]


def check_wide_model(family: str, width: str, tokens: int, folder: Path) -> dict[str, Any]:
    """What `wide` found. Gradients differ by what bfloat16 rounds; a fused head adds up pieces of 512 tokens in it."""
    run_apart(call_program, ("tests.gpu.wide", family, width, str(tokens), str(folder)), timeout_seconds=2400)
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    assert tokens - 4 <= found["tokens"] <= tokens
    assert found["forward_calls"] == 2 * found["layers"], "each layer once, and once more for the backward pass"
    assert found["log_prob_difference"] <= 0.02
    errors = found["gradient_errors"]
    assert any("visual." in name for name in errors) and "lm_head.weight" in errors
    assert max(errors.values()) <= 0.1, errors
    return found


def call_program(module: str, *arguments: str) -> None:
    sys.argv = [module, *arguments]
    importlib.import_module(module).main()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", TOWER_HEADS)
def test_a_small_model_in_bfloat16_is_that_of_unpacked_sequences(family: str, tmp_path: Path) -> None:
    check_wide_model(family, "small", 1600, tmp_path)


@pytest.fixture(params=["cpu", "gpu"])
def tolerance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """Attention as on a CPU, and as on a GPU by a double of its kernel; relative error that its rounding allows."""
    if request.param == "cpu":
        yield 1e-5
        return
    monkeypatch.setattr(varlen, "has_kernel", lambda device: True)
    with kernel_on_cpus() as calls:
        yield 0.01  # bfloat16
    assert calls.forward == 1


def random_heads(
    lengths: Sequence[int], num_heads: Sequence[int], size: int, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """Queries, keys and values of sequences in a row, with gradients."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(sum(lengths), heads, size, generator=generator).to(dtype).requires_grad_() for heads in num_heads
    ]


def masked_attention(qkv: list[torch.Tensor], lengths: Sequence[int], causal: bool, scale: float) -> torch.Tensor:
    """One attention over everything whose mask is block-diagonal."""
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    mask = owner[:, None] == owner[None]
    found = scaled_dot_product_attention(
        *(values.transpose(0, 1)[None] for values in qkv),
        attn_mask=mask.tril() if causal else mask,
        scale=scale,
        enable_gqa=True,
    )
    return found[0].transpose(0, 1)


def ends_of(lengths: Sequence[int]) -> torch.Tensor:
    return torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [[5, 1, 9], [11]])
@pytest.mark.parametrize(("num_heads", "size"), [((4, 4, 4), 8), ((7, 1, 1), 128), ((4, 2, 2), 80), ((2, 2, 2), 72)])
def test_no_sequence_attends_to_another(
    num_heads: tuple[int, int, int], size: int, lengths: list[int], causal: bool, tolerance: float
) -> None:
    """Forward pass and gradients of inputs in float32."""
    qkv, ends = random_heads(lengths, num_heads, size), ends_of(lengths)
    scale = size**-0.5
    expected = masked_attention(qkv, lengths, causal, scale)
    packed = varlen.flash_attn_varlen_func(*qkv, ends, ends, softmax_scale=scale, causal=causal)
    assert packed.dtype == torch.float32
    assert relative_error(expected, packed) <= tolerance
    weights = torch.randn(packed.shape, generator=torch.Generator().manual_seed(1))
    for one, other in zip(
        torch.autograd.grad((expected * weights).sum(), qkv),
        torch.autograd.grad((packed * weights).sum(), qkv),
        strict=True,
    ):
        assert relative_error(one, other) <= tolerance


def test_rows_of_one_length_are_one_call(tolerance: float) -> None:
    lengths = [6, 6, 6]
    qkv = random_heads(lengths, (4, 2, 2), 16)
    rows = varlen.flash_attn_func(*(it.unflatten(0, (3, 6)) for it in qkv), softmax_scale=0.25, causal=True)
    assert rows.shape == (3, 6, 4, 16)
    assert relative_error(masked_attention(qkv, lengths, True, 0.25), rows.flatten(0, 1)) <= tolerance


@pytest.mark.parametrize(("dtype", "kept"), [(torch.float16, True), (torch.bfloat16, True), (torch.float32, False)])
def test_the_kernel_gets_half_precision(dtype: torch.dtype, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever precision a model computes; autocast chooses where the inputs are whole."""
    monkeypatch.setattr(varlen, "has_kernel", lambda device: True)
    qkv = random_heads([4], (2, 2, 2), 8, dtype)
    with kernel_on_cpus() as calls:
        for autocast in (None, torch.float16):
            with torch.autocast("cpu", autocast) if autocast else nullcontext():
                found = varlen.flash_attn_varlen_func(*qkv, ends_of([4]), ends_of([4]))
            assert found.dtype == dtype
    assert calls.dtypes == ([dtype, dtype] if kept else [torch.bfloat16, torch.float16])


def test_a_head_that_is_not_contiguous_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "has_kernel", lambda device: True)
    q = torch.randn(4, 8, 2, dtype=torch.bfloat16).transpose(1, 2)
    assert q.stride(-1) != 1
    with kernel_on_cpus() as calls:
        varlen.flash_attn_varlen_func(q, q, q, ends_of([4]), ends_of([4]))
    assert calls.forward == 1


def test_the_double_refuses_what_the_kernel_refuses() -> None:
    half, ends = torch.zeros(3, 2, 8, dtype=torch.bfloat16), ends_of([3]).int()
    with kernel_on_cpus():
        for q, k, fault in (
            (half.float(), half.float(), "fp16 and bf16"),
            (half, half.half(), "same dtype"),
            (half[..., :4], half[..., :4], "multiple of 8"),
            (torch.zeros(3, 2, 264).half(), torch.zeros(3, 2, 264).half(), "at most 256"),
            (torch.zeros(3, 3, 8).half(), torch.zeros(3, 2, 8).half(), "must divide|be a multiple"),
        ):
            with pytest.raises((RuntimeError, ValueError), match=fault):  # torch's function, or the kernel below it
                varlen_attn(q, k, k, ends, ends, 3, 3, **varlen._GROUPED)
        with pytest.raises(RuntimeError, match="int32"):
            varlen_attn(half, half, half, ends.long(), ends.long(), 3, 3)


@pytest.mark.parametrize("option", [{"window_size": (1, 1)}, {"dropout_p": 0.1}])
def test_windows_and_dropout_are_refused(option: dict[str, Any]) -> None:
    tokens, ends = torch.zeros(3, 1, 8), torch.tensor([0, 3])
    with pytest.raises(NotImplementedError, match="neither a sliding window nor dropout"):
        varlen.flash_attn_varlen_func(tokens, tokens, tokens, ends, ends, **option)


@pytest.mark.parametrize(
    ("named", "is_installed", "taken"),
    [
        ("flash_attention_2", False, packed_attention.NAME),
        ("flash_attention_2", True, "flash_attention_2"),
        ("sdpa", False, "sdpa"),
    ],
)
def test_flash_attention_is_taken_where_it_is_installed(
    named: str, is_installed: bool, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_attention, "is_flash_attn_2_available", lambda: is_installed)
    config = AutoConfig.from_pretrained(model_dir(), attn_implementation=named)
    packed_attention.replace_flash_attention(config)
    names = {part._attn_implementation for part in (config, config.text_config, config.vision_config)}
    assert names == {taken}
