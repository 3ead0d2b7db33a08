"""vLLM in bfloat16, as recipes run it on a GPU, against plain transformers in float32 on the host."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from tests.integration.parity import Fault
from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(700)]

BOUND = 0.02
"""Mean difference of log-probabilities that bfloat16 may make; vLLM on a CPU makes 0.002."""


@pytest.mark.parametrize("family", FAMILIES)
def test_two_sampled_turns_with_pictures_between_them(family: Family, run_python: Any) -> None:
    """Before and after the first observation picture; faults on its far side would be noticed."""
    answer = run_python("-m", "tests.integration.dialogue", str(base_model_dir(family)), "{}", "bfloat16")
    means = json.loads(answer.splitlines()[-1])["means"]
    assert max(means["engine"]) <= BOUND, means
    assert all(means[fault][1] > 3 * means["engine"][1] for fault in get_args(Fault)), means
