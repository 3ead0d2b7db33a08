"""What vLLM's engine gets from our front end is what it gets from its own (`front_end_requests` has the comparison)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def compare(family: Family, cache_gb: float) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-m", "tests.integration.front_end_requests", str(base_model_dir(family)), str(cache_gb)],
        env=os.environ | {"VERL_PLATFORM": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("family", FAMILIES)
def test_64_interleaved_requests(family: Family) -> None:
    result = compare(family, cache_gb=4)
    assert result["num_requests"] == 64 and result["num_cached"] > 500
    assert result["differences"] == []


def test_64_interleaved_requests_with_images_thrown_out_of_the_cache() -> None:
    result = compare("qwen2_5_vl", cache_gb=0.008)
    assert result["num_evicted"] > 100
    assert result["differences"] == []
