"""One forward pass, several ways to compute it: the host's float32, the device's, its bfloat16, padded and packed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from verl_video_tools.synthetic import FAMILIES, base_model_dir

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(700)]

FLOAT32_BOUND = 1e-3
"""Largest difference of log-probabilities between two machines' float32."""
BFLOAT16_BOUND = 0.1
"""Mean difference of log-probabilities that bfloat16 may make: it keeps 8 bits."""


@pytest.fixture(scope="module", params=FAMILIES)
def found(request: pytest.FixtureRequest, run_python: Any, device: str) -> dict[str, list[np.ndarray]]:
    """Log-probabilities of three dialogues, by the way they were computed."""
    answer = json.loads(
        run_python("-m", "tests.gpu.forward", str(base_model_dir(request.param)), device).splitlines()[-1]
    )
    return {name: [np.array(row) for row in rows] for name, rows in answer.items()}


def differences(one: list[np.ndarray], other: list[np.ndarray]) -> list[np.ndarray]:
    return [np.abs(a - b) for a, b in zip(one, other, strict=True)]


def test_float32_is_that_of_the_host(found: dict[str, list[np.ndarray]]) -> None:
    assert max(row.max() for row in differences(found["float32"], found["host"])) <= FLOAT32_BOUND


def test_bfloat16_is_near_float32(found: dict[str, list[np.ndarray]]) -> None:
    assert max(row.mean() for row in differences(found["padded"], found["float32"])) <= BFLOAT16_BOUND


def test_packed_rows_are_padded_rows(found: dict[str, list[np.ndarray]]) -> None:
    """And rows that see their neighbours in the pack, which later ones do where positions go on, would be noticed."""
    assert max(row.mean() for row in differences(found["packed"], found["padded"])) <= BFLOAT16_BOUND
    _, *later = differences(found["leaking"], found["padded"])
    assert min(row.mean() for row in later) > 2 * BFLOAT16_BOUND
