"""`make bench-gpu` in small: every figure is measured, and decoding is no slower than what stock verl does."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(700)]

PROGRAM = """
import json
import verl  # the CPU platform, where there is no GPU, answers for vLLM's name
from benchmarks.gpu import base_model_dir, measure
from benchmarks.video.long_files import LongVideo

if __name__ == "__main__":
    video = LongVideo("small", 640, 360, copy_seconds=4, copies=15)
    rates = measure(str(base_model_dir()), video, num_rollouts=4, tokens_per_prompt=16)
    print(json.dumps({rate.name: [rate.ours_per_second, rate.baseline_per_second] for rate in rates}))
"""


def test_decode_and_tokens(run_python: Any) -> None:
    rates = json.loads(run_python("-c", PROGRAM).splitlines()[-1])
    assert set(rates) == {"decode", "tokens", "headroom"}
    assert all(min(pair) > 0 for pair in rates.values()), rates
    ours, baseline = rates["decode"]
    assert ours > baseline, rates
