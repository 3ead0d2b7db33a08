"""What the installed vLLM has of Qwen3.5 for a CPU: its kernels of linear attention, tried beside transformers' own.

    VERL_PLATFORM=cpu python -m tests.verl_plugin.qwen3_5_facts

Prints one JSON object: whether the architecture is registered, and for each case the largest difference of outputs, or
the message with which the kernel refuses.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import torch
import vllm._custom_ops as ops
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule
from vllm.model_executor.models.registry import ModelRegistry
from vllm.platforms import current_platform

NUM_TOKENS, NUM_HEADS = 70, 2
CASES = {"bfloat16": (torch.bfloat16, 64), "float32": (torch.float32, 64), "small_heads": (torch.bfloat16, 16)}
"""Of each the dtype, and the size of a head."""


def difference(dtype: torch.dtype, head_size: int) -> float:
    torch.manual_seed(0)
    shape = (1, NUM_TOKENS, NUM_HEADS, head_size)
    query, key, value = (torch.randn(shape).to(dtype) for _ in range(3))
    g, beta = -torch.rand(shape[:3]), torch.rand(shape[:3]).to(dtype)
    state: dict[str, Any] = {"initial_state": torch.zeros(1, NUM_HEADS, head_size, head_size)}
    if "initial_state_indices" in inspect.signature(ops.chunk_gated_delta_rule_cpu).parameters:
        state["initial_state_indices"] = torch.tensor([0], dtype=torch.int32)
    found, _ = ops.chunk_gated_delta_rule_cpu(
        query=query,
        key=key,
        value=value,
        g=g,
        beta=beta,
        output_final_state=True,
        cu_seqlens=torch.tensor([0, NUM_TOKENS], dtype=torch.int32),
        head_first=False,
        use_qk_l2norm_in_kernel=True,
        **state,
    )
    expected, _ = torch_chunk_gated_delta_rule(
        query.float(), key.float(), value.float(), g=g, beta=beta.float(), use_qk_l2norm_in_kernel=True
    )
    return float((found.float() - expected.float()).abs().max())


def main() -> dict[str, Any]:
    current_platform.import_kernels()
    found: dict[str, Any] = {"registered": "Qwen3_5ForConditionalGeneration" in ModelRegistry.get_supported_archs()}
    for name, case in CASES.items():
        try:
            found[name] = difference(*case)
        except RuntimeError as error:
            found[name] = str(error).splitlines()[0]
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
