"""What `vvt estimate` reserves for an image in vLLM's processor cache is what vLLM counts for it.

Half of it, where vLLM sends pixels in 8 bits (0.29: Qwen2.5-VL).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from verl_video_tools.launch.plan import find_model
from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

GRID_BYTES = 3 * 8
"""Beside the features: three int64 of the image's grid."""


@pytest.mark.parametrize("family", FAMILIES)
def test_an_image_takes_what_is_planned(family: Family) -> None:
    model = find_model(str(base_model_dir(family)))
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.integration.processor_cache_sizes",
            str(base_model_dir(family)),
            str(4 * model.factor),
        ],
        env=os.environ | {"VERL_PLATFORM": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    found = json.loads(process.stdout.splitlines()[-1])
    assert found["num_tokens"] == 16
    assert found["bytes_per_value"] in (1, 2)
    assert 2 * (found["num_bytes"] - GRID_BYTES) == 16 * model.feature_bytes_per_image_token * found["bytes_per_value"]
