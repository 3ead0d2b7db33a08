"""Attention within each of several sequences that follow each other, by torch alone: flash-attn's functions without it.

torch brings flash-attn's kernel as `varlen_attn`: one call per layer on a GPU. On a CPU torch's ordinary attention
takes one sequence after the other. This needs no verl, so that a machine with little more than torch can measure it
(`benchmarks.first_gpu`).
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

# Later versions of torch than the pinned one want to be told that several heads of queries share those of keys.
_GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
_NO_WINDOW = (-1, -1)
_CAUSAL_WINDOW = (-1, 0)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: Tensor | int | None = None,
    max_seqlen_k: Tensor | int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = _NO_WINDOW,
    deterministic: bool = False,
) -> Tensor:
    """Attention within each of several sequences that follow each other.

    Args:
        q: shape (tokens, heads, size); `k` and `v` alike, or with fewer heads that divide those of `q`.
        cu_seqlens_q: where each sequence starts, and at last the number of tokens; `cu_seqlens_k` alike.
        max_seqlen_q, max_seqlen_k: tokens of the longest sequence; counted where they are not given.
        deterministic: of no use here; torch's own `use_deterministic_algorithms` decides.

    Returns:
        Shape (tokens, heads, size), of the type of `q`.

    Raises:
        NotImplementedError: a sliding window, or dropout.
    """
    # The supported models set neither; to ignore one would change results.
    if tuple(window_size) != _NO_WINDOW or dropout_p:
        raise NotImplementedError(
            f"window_size={tuple(window_size)}, dropout_p={dropout_p}: attention by torch has neither a sliding window "
            "nor dropout; install flash-attn, or set use_sliding_window=false and attention_dropout=0"
        )
    if not has_kernel(q.device):
        return _one_by_one(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal)
    longest = [
        int(ends.diff().max() if length is None else length)
        for ends, length in ((cu_seqlens_q, max_seqlen_q), (cu_seqlens_k, max_seqlen_k))
    ]
    return _in_one_call(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal, longest)


def has_kernel(device: torch.device) -> bool:
    """Whether torch's kernel for packed sequences runs on such a device."""
    return device.type != "cpu"


def _in_one_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ends_q: Tensor,
    ends_k: Tensor,
    scale: float | None,
    causal: bool,
    longest: list[int],
) -> Tensor:
    """By the kernel for GPUs, which takes half precision and contiguous heads alone, and lengths in 32 bits.

    Autocast has no rule for it, so that its inputs are cast here.
    """
    device = q.device.type
    wanted = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.bfloat16
    dtype = q.dtype if q.dtype in (torch.float16, torch.bfloat16) else wanted
    halves = (values.to(dtype) for values in (q, k, v))
    attended = varlen_attn(
        *(values if values.stride(-1) == 1 else values.contiguous() for values in halves),
        ends_q.int(),
        ends_k.int(),
        *longest,
        scale=scale,
        window_size=_CAUSAL_WINDOW if causal else _NO_WINDOW,
        **_GROUPED,
    )
    assert isinstance(attended, Tensor)  # a pair only where the sums of the softmax are requested
    return attended.to(q.dtype)


def _one_by_one(
    q: Tensor, k: Tensor, v: Tensor, ends_q: Tensor, ends_k: Tensor, scale: float | None, causal: bool
) -> Tensor:
    """By torch's ordinary attention, in whatever precision the inputs have."""
    q_lengths, k_lengths = (ends.diff().tolist() for ends in (ends_q, ends_k))
    heads_first = (values.transpose(0, 1) for values in (q, k, v))  # (heads, tokens, size), as torch takes them
    parts = (
        values.split(sizes, 1) for values, sizes in zip(heads_first, (q_lengths, k_lengths, k_lengths), strict=True)
    )
    attended = [
        scaled_dot_product_attention(
            q_part[None], k_part[None], v_part[None], is_causal=causal, scale=scale, enable_gqa=True
        )[0]
        for q_part, k_part, v_part in zip(*parts, strict=True)
    ]
    return torch.cat(attended, 1).transpose(0, 1).contiguous()


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Attention within each sequence of a batch, all of one length; shapes (batch, tokens, heads, size)."""
    num_rows, *_ = q.shape
    ends = (torch.arange(num_rows + 1, device=q.device) * rows.shape[1] for rows in (q, k))
    packed = flash_attn_varlen_func(*(rows.flatten(0, 1) for rows in (q, k, v)), *ends, **options)
    return packed.unflatten(0, (num_rows, -1))
