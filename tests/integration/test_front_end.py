"""What vLLM's engine gets from our front end is what it gets from its own (`front_end_requests` has the comparison).

Two engines generate the same tokens from it (`front_end_tokens`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from verl_video_tools.config import VLLM_CPU_ENVIRONMENT
from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]


def compare(family: Family, cache_gb: float) -> dict[str, Any]:
    return output_of("front_end_requests", str(base_model_dir(family)), str(cache_gb))


def output_of(program: str, *arguments: str) -> dict[str, Any]:
    """vLLM warns, and warnings are errors here: it runs in a process of its own."""
    process = subprocess.run(
        [sys.executable, "-m", f"tests.integration.{program}", *arguments],
        env=os.environ | VLLM_CPU_ENVIRONMENT | {"VERL_PLATFORM": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


def assert_equal_to_vllms(result: dict[str, Any]) -> None:
    """All requests, of rollouts that ran at the same time under two settings of the processor."""
    assert result["num_requests"] == 64 and result["num_interleaved"] > 32
    assert result["differences"] == []
    assert result["num_under_both_settings"] == 4 * 12 and result["num_shared_by_settings"] == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_64_interleaved_requests(family: Family) -> None:
    result = compare(family, cache_gb=4)
    assert result["num_cached"] > 500 and result["num_evicted"] == 0
    assert_equal_to_vllms(result)


def test_64_interleaved_requests_with_images_thrown_out_of_the_cache() -> None:
    result = compare("qwen2_5_vl", cache_gb=0.015)
    assert result["num_evicted"] > 100 and result["num_cached"] > 100
    assert_equal_to_vllms(result)


def test_two_engines_generate_the_same_tokens() -> None:
    result = output_of("front_end_tokens", str(base_model_dir("qwen2_5_vl")))
    assert result["num_tokens"] == 3 * 4 * 4 * 6  # groups, rollouts, turns, tokens
    assert result["differing"] == [] and result["ties"] == []
    assert result["largest_difference"] <= 1e-5 < result["difference_of_reversed"]
