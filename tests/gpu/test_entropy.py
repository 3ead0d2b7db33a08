"""Memory of log-probabilities and entropy by CUDA's allocator, against what `launch.plan` takes for it.

Not yet run on a GPU: docs/memory.md has the figures of a CPU, with a stand-in for flash-attn that allocates as much.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from verl_video_tools.launch.plan import ENTROPY_COPIES, LOGIT_COPIES

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(700)]

TOLERANCE = 1.1
ALONE, DEFAULT = "log-probabilities alone", "verl's default, compiled"
EAGER, FUSED = "verl's default, eager", "fused kernels"


@pytest.fixture(scope="module")
def peaks(run_python: Any, device: str) -> dict[str, float]:
    """Of the last of ten lengths, in units of the logits in bfloat16, by variant."""

    def measure(name: str) -> float:
        arguments = ("--variant", name, "--vocabulary", "8192", "--tokens", "256", "--device", device)
        found: list[float] = json.loads(run_python("-m", "benchmarks.entropy", *arguments).splitlines()[-1])
        return found[-1]

    return {name: measure(name) for name in (ALONE, DEFAULT, EAGER, FUSED)}


def test_peaks_are_those_that_a_plan_takes(peaks: dict[str, float]) -> None:
    assert peaks[ALONE] <= TOLERANCE * LOGIT_COPIES, peaks
    assert peaks[DEFAULT] <= TOLERANCE * (LOGIT_COPIES + ENTROPY_COPIES), peaks


def test_entropy_takes_no_more_than_two_further_copies_after_ten_lengths(peaks: dict[str, float]) -> None:
    assert 0 < peaks[DEFAULT] - peaks[ALONE] <= TOLERANCE * ENTROPY_COPIES, peaks
    assert peaks[EAGER] - peaks[ALONE] > 2 * ENTROPY_COPIES, peaks  # more would be noticed


def test_fused_kernels_keep_no_logits(peaks: dict[str, float]) -> None:
    assert peaks[FUSED] < peaks[DEFAULT], peaks
