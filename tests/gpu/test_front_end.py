"""Our front end before vLLM on a GPU: the tokens of vLLM's own, and prompts that later turns find in the cache.

Not yet run on a GPU. On the CPU the same program is part of tests/integration/test_front_end.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from verl_video_tools.synthetic import FAMILIES, Family, base_model_dir

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(700)]

TIE = 1e-3
"""Of log-probabilities in float32: a GPU adds in another order when other requests share the batch."""
GPU_SHARE = 0.3
"""Two engines run at the same time."""


@pytest.mark.parametrize("family", FAMILIES)
def test_two_engines_generate_the_tokens_of_vllms_own_front_end(family: Family, run_python: Any) -> None:
    arguments = (str(base_model_dir(family)), str(TIE), str(GPU_SHARE))
    found = json.loads(run_python("-m", "tests.integration.front_end_tokens", *arguments).splitlines()[-1])
    assert found["differing"] == [], found
    assert found["largest_difference"] <= TIE < found["difference_of_reversed"], found
    assert min(found["cached_tokens"].values()) > 0, found
