"""Attention for packed sequences by torch alone, where flash-attn is not installed.

With `use_remove_padding=True` verl packs the sequences of a micro-batch into one, and leaves it to flash-attn to keep
them apart. flash-attn has to be compiled and takes CUDA alone. `varlen` has its functions by torch alone. The engines
choose this module wherever flash-attn is missing (`replace_flash_attention`); by name it is

    ++actor_rollout_ref.model.override_config.attn_implementation=packed_by_torch

Above these functions runs the code of verl and transformers that calls flash-attn. It looks up flash-attn among the
globals of its modules, which lack those names where flash-attn is not installed. Those modules are not changed: `_with`
copies a function and gives the copy globals of its own. transformers' `AttentionInterface` leads to the copies. verl
replaces the attention of Qwen2.5-VL as a whole: `use` gives such a model layers of ours.

Gloo is the second thing that differs: it has no `all_to_all` of lists, which Ulysses calls, but `all_to_all_single`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers import modeling_flash_attention_utils as transformers_flash
from transformers.integrations import flash_attention as transformers_attention
from transformers.masking_utils import flash_attention_mask
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLAttention
from transformers.utils import is_flash_attn_2_available, is_torch_npu_available
from verl.models.transformers import monkey_patch, qwen2_vl
from verl.utils.ulysses import get_ulysses_sequence_parallel_group

from verl_video_tools.verl_plugin.varlen import flash_attn_func, flash_attn_varlen_func

NAME = "packed_by_torch"
"""For `attn_implementation`. transformers would look for CUDA if it held the word flash."""
_TOWER_NAME = "packed_by_torch_like_flash"
"""For layers of vision towers: those whose attention lacks the word call it once for each window of each picture."""


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


def _flash_attention_functions(*_: Any, **__: Any) -> tuple[Any, ...]:
    """What transformers imports where flash-attn is installed (`_lazy_imports`); None: for caches of generation."""
    pad, unpad = transformers_flash._pad_input, transformers_flash._unpad_input
    return flash_attn_func, flash_attn_varlen_func, None, pad, unpad


# The copy remembers what it has imported among its own globals, and answers in the form of the installed transformers.
_remember_functions = _with(
    transformers_flash.lazy_import_flash_attention,
    _lazy_imports=_flash_attention_functions,
    _loaded_implementation=None,
)


def _import_flash_attention(*_: Any, **__: Any) -> Any:
    """verl does not say which of transformers' attentions it calls."""
    return _remember_functions(NAME)


def _autocast_half(q: Tensor, k: Tensor, v: Tensor, target_dtype: torch.dtype | None = None) -> Any:
    """verl casts float32 to bfloat16 for flash-attn, which has no float32; a CPU's run in float32 stays in float32."""
    device = q.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
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


def replace_flash_attention(config: PreTrainedConfig) -> None:
    """Give a model that is about to be loaded this attention, where it would have flash-attn and that is missing."""
    # On Huawei's devices transformers takes a kernel of theirs by the same name.
    has_kernel = is_flash_attn_2_available() or is_torch_npu_available()
    if config._attn_implementation == "flash_attention_2" and not has_kernel:
        config._attn_implementation = NAME


def register() -> None:
    """Make the names known to transformers; models that are loaded later can have them."""
    for name in (NAME, _TOWER_NAME):
        AttentionInterface.register(name, _attention)
        AttentionMaskInterface.register(name, flash_attention_mask)  # none for packed sequences


def use(model: PreTrainedModel) -> None:
    """In a model that was loaded with the name: what the name alone does not do.

    Attention layers that do not ask `AttentionInterface` are replaced. transformers' `register_patch_mapping` does
    this, too, but looks through all of its modules at every load: 1 to 3 s. Layers of a vision tower get a
    configuration by whose name transformers calls their attention once for all windows. The tower itself keeps its own,
    since verl makes models anew from it, and for that name transformers would load a kernel.
    """
    if model.config._attn_implementation != NAME:
        return
    for layer in list(model.modules()):
        attention: Any = getattr(layer, "self_attn", None)
        if type(attention) is Qwen2_5_VLAttention:
            layer.self_attn = _PackedQwen2Attention.from_stock(attention)
    if vision := getattr(model.config, "vision_config", None):
        tower_config = deepcopy(vision)
        tower_config._attn_implementation = _TOWER_NAME
        for layer in model.modules():
            if type(getattr(layer, "config", None)) is type(vision) and not isinstance(layer, PreTrainedModel):
                layer.config = tower_config
