"""Attention of packed sequences at published head sizes: tokens per second, and its difference from unpacked attention.

    python -m benchmarks.first_gpu.attention

It needs torch, neither verl nor flash-attn: this is what our engines call where flash-attn is missing. A case's
difference is the largest of output and gradients from torch's `scaled_dot_product_attention` over each sequence alone
in float32, divided by the largest value. Without a GPU there is no kernel: each sequence then passes torch's ordinary
attention in float32, at lengths divided by 128. The exit code is 1 where a difference is beyond its bound.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu_model.memory import GRID, PUBLISHED
from benchmarks.gpu_model.meter import Meter, section
from benchmarks.gpu_model.random_model import configuration
from verl_video_tools.launch.plan import find_model
from verl_video_tools.verl_plugin.varlen import flash_attn_varlen_func

TEXT = (96, 64, 48, 32)
"""Tokens of four rollouts, in units of `TIMES`."""
IMAGES = (GRID[0] * GRID[1],) * 5
"""Each is a sequence of the vision tower."""
TIMES = 128
"""On a GPU. It makes the images those of LongVT's longest rollout."""
SHORT = (257, 64, 130)
"""Of the case that is compared."""
BOUND = 0.02
"""bfloat16 has 8 bits."""


@dataclass(frozen=True)
class Heads:
    """Of a layer: `queries` heads of `size` values, which share `keys` heads of keys and values."""

    name: str
    queries: int
    keys: int
    size: int
    causal: bool


def published_heads() -> Iterator[Heads]:
    """Of the language model and the vision tower of both families."""
    for name in PUBLISHED.values():
        shape, tower_heads = find_model(name), configuration(name)["vision_config"]["num_heads"]
        yield Heads(f"{name}, text", shape.heads, shape.kv_heads, shape.head_dim, True)
        yield Heads(f"{name}, tower", tower_heads, tower_heads, shape.vision_hidden // tower_heads, False)


def random_inputs(heads: Heads, lengths: tuple[int, ...], device: str, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values of all sequences, each (tokens, heads, size)."""
    torch.manual_seed(0)
    return [
        torch.randn(sum(lengths), number, heads.size, device=device, dtype=dtype, requires_grad=True)
        for number in (heads.queries, heads.keys, heads.keys)
    ]


def packed(heads: Heads, inputs: list[Tensor], lengths: tuple[int, ...]) -> Tensor:
    """All sequences in one call, (tokens, heads, size)."""
    ends = torch.tensor([0, *lengths], device=inputs[0].device).cumsum(0)
    queries, keys, values = inputs
    return flash_attn_varlen_func(queries, keys, values, ends, ends, max(lengths), max(lengths), causal=heads.causal)


def unpacked(heads: Heads, inputs: list[Tensor], lengths: tuple[int, ...]) -> Tensor:
    """The same by torch's ordinary attention of each sequence alone, with as many heads of keys as of queries."""
    shared = (1, heads.queries // heads.keys, heads.queries // heads.keys)
    heads_first = (each.repeat_interleave(by, 1).transpose(0, 1) for each, by in zip(inputs, shared, strict=True))
    parts = zip(*(each.split(lengths, 1) for each in heads_first), strict=True)
    rows = [scaled_dot_product_attention(q[None], k[None], v[None], is_causal=heads.causal)[0] for q, k, v in parts]
    return torch.cat(rows, 1).transpose(0, 1)


def difference(heads: Heads, device: str, dtype: torch.dtype) -> float:
    """The largest of output and gradients, each divided by its largest value."""
    inputs = random_inputs(heads, SHORT, device, dtype)
    weights = torch.randn(inputs[0].shape, device=device)
    exact = [each.detach().float().requires_grad_() for each in inputs]
    found = []
    for attention, of_way in ((packed, inputs), (unpacked, exact)):
        attended = attention(heads, of_way, SHORT)
        found.append([attended.detach(), *torch.autograd.grad(attended, of_way, weights.to(dtype).to(attended.dtype))])
    errors = [(one.float() - other).abs().max() / other.abs().max() for one, other in zip(*found, strict=True)]
    return float(torch.stack(errors).max())


def measure(meter: Meter, heads: Heads) -> bool:
    """Two lines; whether the difference is within its bound."""
    on_gpu = meter.device == "cuda"
    dtype, times = (torch.bfloat16, TIMES) if on_gpu else (torch.float32, 1)
    lengths = tuple(times * length for length in TEXT) if heads.causal else times * IMAGES
    tokens, inputs = sum(lengths), random_inputs(heads, lengths, meter.device, dtype)
    weights = torch.randn_like(inputs[0])
    error = difference(heads, meter.device, dtype)
    is_within = error <= BOUND  # not-a-number is not
    note = f"{tokens:,} tokens, difference {error:.1e}, {'within' if is_within else 'BEYOND'} {BOUND}"

    def update() -> None:
        packed(heads, inputs, lengths).backward(weights)
        for each in inputs:
            each.grad = None

    case = f"{heads.name}: {heads.queries} heads of {heads.size}, {heads.keys} of keys, {len(lengths)} sequences"
    meter.add("forward", case, torch.no_grad()(lambda: packed(heads, inputs, lengths)), tokens=tokens)
    meter.add("forward and backward", case, update, tokens=tokens, note=note)
    return is_within


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    meter = Meter(device)
    are_within = [measure(meter, heads) for heads in published_heads()]
    way = "torch's varlen kernel, bfloat16" if device == "cuda" else "no kernel: torch's attention by sequence, float32"
    print(section(f"Packed attention on {device} ({way})", meter.lines))
    return 0 if all(are_within) else 1


if __name__ == "__main__":
    sys.exit(main())
