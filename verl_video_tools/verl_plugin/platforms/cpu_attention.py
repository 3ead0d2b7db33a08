"""A replacement of flash-attn on CPUs, so that packed sequences and Ulysses can be run without a GPU.

With `use_remove_padding=True` verl packs the sequences of a micro-batch into one, and leaves it to flash-attn to keep
them apart. flash-attn takes CUDA. Here torch's own attention does it, one sequence after the other.

    actor_rollout_ref.model.use_remove_padding=True
    +actor_rollout_ref.model.override_config.attn_implementation=packed_by_torch

Above the replacement runs the code of verl and transformers, since a smoke test is there to run it. It looks up
flash-attn among the globals of its modules, which lack those names where flash-attn is not installed. Those modules
are not changed: `_with` copies a function and gives the copy globals of its own. transformers' `AttentionInterface`
leads to the copies. verl replaces the attention of Qwen2.5-VL as a whole: `use` gives such a model layers of ours.

Gloo is the second thing that differs: it has no `all_to_all` of lists, which Ulysses calls, but `all_to_all_single`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import modeling_flash_attention_utils as transformers_flash
from transformers.integrations import flash_attention as transformers_attention
from transformers.masking_utils import flash_attention_mask
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLAttention
from verl.models.transformers import monkey_patch, qwen2_vl
from verl.utils.ulysses import get_ulysses_sequence_parallel_group

NAME = "packed_by_torch"
"""For `attn_implementation`. transformers would look for CUDA if it held the word flash."""
_NO_WINDOW = (-1, -1)


# ----------------------------------------------------------------------------------- what flash-attn would bring along


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
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
        max_seqlen_q: of no use here, as `max_seqlen_k` and `deterministic`.

    Returns:
        Shape (tokens, heads, size).

    Raises:
        NotImplementedError: a sliding window.
    """
    if tuple(window_size) != _NO_WINDOW:  # the supported models set none; to ignore one would change results
        raise NotImplementedError("attention by torch on a CPU has no sliding window")
    q_lengths, k_lengths = (ends.diff().tolist() for ends in (cu_seqlens_q, cu_seqlens_k))
    heads_first = (values.transpose(0, 1) for values in (q, k, v))  # (heads, tokens, size), as torch takes them
    parts = (
        values.split(sizes, 1) for values, sizes in zip(heads_first, (q_lengths, k_lengths, k_lengths), strict=True)
    )
    attended = [
        scaled_dot_product_attention(
            q_part[None],
            k_part[None],
            v_part[None],
            dropout_p=dropout_p,
            is_causal=causal,
            scale=softmax_scale,
            enable_gqa=True,
        )[0]
        for q_part, k_part, v_part in zip(*parts, strict=True)
    ]
    return torch.cat(attended, 1).transpose(0, 1).contiguous()


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Attention within each sequence of a batch, all of one length; shapes (batch, tokens, heads, size)."""
    batch = (flash_attn_varlen_func(*qkv, _ends(qkv[0]), _ends(qkv[1]), **options) for qkv in zip(q, k, v, strict=True))
    return torch.stack(list(batch))


def _ends(tokens: Tensor) -> Tensor:
    return torch.tensor([0, len(tokens)])


# -------------------------------------------------------------------------------------------- what gloo does not bring


class _Exchange(torch.autograd.Function):
    """verl's `SeqAllToAll`: each rank keeps its part of one dimension, and gets that part of all ranks."""

    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, sent: Tensor, scatter_dim: int, gather_dim: int) -> Tensor:
        ctx.group, ctx.scatter_dim, ctx.gather_dim = group, scatter_dim, gather_dim
        parts = torch.stack(sent.tensor_split(dist.get_world_size(group), scatter_dim))
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts, group=group)
        return torch.cat(received.unbind(), gather_dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Any, None, None]:
        return None, _Exchange.apply(ctx.group, gradients[0], ctx.gather_dim, ctx.scatter_dim), None, None


def _gather_seq_scatter_heads(states: Tensor, seq_dim: int, head_dim: int) -> Any:
    group = get_ulysses_sequence_parallel_group()
    return _Exchange.apply(group, states, head_dim, seq_dim) if group else states


def _gather_heads_scatter_seq(states: Tensor, seq_dim: int, head_dim: int) -> Any:
    group = get_ulysses_sequence_parallel_group()
    return _Exchange.apply(group, states, seq_dim, head_dim) if group else states


# ------------------------------------------------------------------------ verl's and transformers' functions above both


def _with(function: Callable[..., Any], **replaced: Any) -> Any:
    """A copy of a function that finds these values under the names of globals; the function itself stays as it is."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **replaced},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _import_flash_attention(*_: Any, **__: Any) -> tuple[Any, Any]:
    """What transformers finds where flash-attn is installed (`lazy_import_flash_attention`)."""
    functions = (
        flash_attn_func,
        flash_attn_varlen_func,
        None,
        transformers_flash._pad_input,
        transformers_flash._unpad_input,
    )
    return functions, transformers_flash._lazy_define_process_function(flash_attn_varlen_func)


def _autocast_half(q: Tensor, k: Tensor, v: Tensor, target_dtype: torch.dtype | None = None) -> Any:
    """verl casts float32 to bfloat16 for flash-attn, which has no float32; a run in float32 stays in float32 here."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return transformers_flash.fa_peft_integration_check(q, k, v, dtype)


_flash_forward = _with(transformers_flash._flash_attention_forward, lazy_import_flash_attention=_import_flash_attention)
_EXCHANGES = {
    "_flash_attention_forward": _flash_forward,
    "gather_seq_scatter_heads": _gather_seq_scatter_heads,
    "gather_heads_scatter_seq": _gather_heads_scatter_seq,
}
_attention = _with(
    transformers_attention.flash_attention_forward,
    _flash_attention_forward=_with(monkey_patch._ulysses_flash_attention_forward, **_EXCHANGES),
)
_qwen2_forward = _with(
    qwen2_vl.qwen2_vl_attn_forward,
    _flash_use_top_left_mask=False,
    _custom_flash_attention_forward=_with(
        qwen2_vl._custom_flash_attention_forward,
        **_EXCHANGES,
        flash_attn_varlen_func=flash_attn_varlen_func,
        fa_peft_integration_check=_autocast_half,
        _flash_supports_window_size=True,
        _flash_supports_deterministic=True,
    ),
)


class _PackedQwen2Attention(Qwen2_5_VLAttention):
    """The attention of Qwen2.5-VL as verl replaces it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _qwen2_forward(self, *args, **kwargs)

    @classmethod
    def from_stock(cls, stock: Qwen2_5_VLAttention) -> _PackedQwen2Attention:
        """The same parameters under this class."""
        with torch.device("meta"):
            attention = cls(stock.config, stock.layer_idx)
        attention.load_state_dict(stock.state_dict(keep_vars=True), assign=True)
        return attention.train(stock.training)


def register() -> None:
    """Make the name known to transformers; models that are loaded later can have it."""
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, flash_attention_mask)  # none for packed sequences


def use(model: Module) -> None:
    """In a model that was loaded with the name: replace attention layers that do not ask `AttentionInterface`.

    transformers' `register_patch_mapping` does this, too, but looks through all of its modules at every load: 1 to 3 s.
    """
    for layer in list(model.modules()):
        attention: Any = getattr(layer, "self_attn", None)
        if type(attention) is Qwen2_5_VLAttention and attention.config._attn_implementation == NAME:
            layer.self_attn = _PackedQwen2Attention.from_stock(attention)
