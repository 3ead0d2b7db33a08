"""A double of torch's attention kernel for GPUs, `aten::_flash_attention_forward` and its backward, on the CPU.

torch's own `varlen_attn` runs above it, with its gradients: neither operator has a kernel for CPUs, and here it gets
one. It computes what the real one does, in float32 and one sequence after the other, and refuses what that refuses
(`mha_varlen_fwd` and `mha_varlen_bwd` in ATen's flash_api.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

HALF = (torch.float16, torch.bfloat16)


@dataclass
class Calls:
    """Of the kernel since it was installed."""

    forward: int = 0
    backward: int = 0
    dtypes: list[torch.dtype] = field(default_factory=list)


def check(q: Tensor, k: Tensor, v: Tensor, ends_q: Tensor, ends_k: Tensor, longest: tuple[Any, Any]) -> None:
    """Raises RuntimeError where the real kernel does."""

    def require(holds: bool, fault: str) -> None:
        if not holds:
            raise RuntimeError(fault)

    tokens, heads, size = q.shape
    require(q.dtype in HALF, "FlashAttention only support fp16 and bf16 data type")
    require(k.dtype == v.dtype == q.dtype, "query, key and value must have the same dtype")
    require(all(it.dtype == torch.int32 for it in (ends_q, ends_k)), "cu_seqlens must have dtype int32")
    require(all(it.is_contiguous() for it in (ends_q, ends_k)), "cu_seqlens must be contiguous")
    require(all(it.stride(-1) == 1 for it in (q, k, v)), "Input tensor must have contiguous last dimension")
    require(size <= 256, "FlashAttention forward only supports head dimension at most 256")
    require(size % 8 == 0, "head_size must be a multiple of 8")
    require(heads % k.shape[1] == 0, "Number of heads in key/value must divide number of heads in query")
    require(k.shape == v.shape and k.shape[2] == size, "key and value have other shapes than query")
    require(int(ends_q[-1]) == tokens and int(ends_k[-1]) == k.shape[0], "cu_seqlens end before the last token")
    for ends, most in zip((ends_q, ends_k), longest, strict=True):
        require(type(most) is int and int(ends.diff().max()) <= most, "a sequence is longer than max_seqlen")


def sequences(tensors: Sequence[Tensor], ends: Sequence[Tensor], heads: int) -> Iterator[list[Tensor]]:
    """Of each sequence its parts in float32, (heads, tokens, size); heads of keys and values are repeated."""
    parts = [
        it.float().transpose(0, 1).repeat_interleave(heads // it.shape[1], 0).split(starts.diff().tolist(), 1)
        for it, starts in zip(tensors, ends, strict=True)
    ]
    yield from (list(row) for row in zip(*parts, strict=True))


def probabilities(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    """Of the keys for each query: (heads, queries, keys)."""
    scores = q @ k.transpose(1, 2) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1)


def joined(rows: Sequence[Tensor], like: Tensor) -> Tensor:
    """Of all sequences (tokens, heads, size), with the heads and the type of an input."""
    found = torch.cat(list(rows), 1).transpose(0, 1)
    tokens, heads, size = like.shape
    return found.reshape(tokens, heads, -1, size).sum(2).to(like.dtype)


@contextmanager
def kernel_on_cpus() -> Iterator[Calls]:
    """Within it both operators work on CPUs and count their calls."""
    calls = Calls()

    def forward(q: Tensor, k: Tensor, v: Tensor, ends_q: Tensor, ends_k: Tensor, *rest: Any, **options: Any) -> Any:
        longest_q, longest_k, dropout, causal, *_ = rest
        assert dropout == 0.0
        check(q, k, v, ends_q, ends_k, (longest_q, longest_k))
        calls.forward += 1
        calls.dtypes.append(q.dtype)
        assert (options["window_size_left"], options["window_size_right"]) == ((-1, 0) if causal else (-1, -1))
        scale = options.get("scale") or q.shape[-1] ** -0.5
        rows = sequences((q, k, v), (ends_q, ends_k, ends_k), q.shape[1])
        found = joined([probabilities(q_HLC, k_HLC, causal, scale) @ v_HLC for q_HLC, k_HLC, v_HLC in rows], q)
        sums = torch.zeros(q.shape[1], q.shape[0])  # of the softmax, which `backward` does not read
        return found.contiguous(), sums, torch.zeros(2, dtype=torch.uint64), torch.zeros(()), torch.zeros(())

    def backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Any:
        found, _, ends_q, ends_k, longest_q, longest_k, _, causal, *_ = rest
        check(q, k, v, ends_q, ends_k, (longest_q, longest_k))
        assert gradient.dtype == found.dtype == q.dtype
        calls.backward += 1
        scale = options.get("scale") or q.shape[-1] ** -0.5
        of_q, of_k, of_v = [], [], []
        # As the derivative of the softmax is; autograd is switched off below an operator.
        for q_HLC, k_HLC, v_HLC, gradient_HLC in sequences(
            (q, k, v, gradient), (ends_q, ends_k, ends_k, ends_q), q.shape[1]
        ):
            weights = probabilities(q_HLC, k_HLC, causal, scale)
            of_weights = gradient_HLC @ v_HLC.transpose(1, 2)
            of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True)) * scale
            of_q.append(of_scores @ k_HLC)
            of_k.append(of_scores.transpose(1, 2) @ q_HLC)
            of_v.append(weights.transpose(1, 2) @ gradient_HLC)
        return joined(of_q, q), joined(of_k, k), joined(of_v, v)

    library = Library("aten", "IMPL")
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
    try:
        yield calls
    finally:
        library._destroy()


def relative_error(one: Tensor, other: Tensor) -> float:
    """Of `other`, by norms."""
    return float(((one - other).norm() / one.norm().clamp(min=1e-12)).detach())
