"""The planner against the measured step of every method, to which its tokens, images and bytes were not fitted."""

from __future__ import annotations

import pytest

from benchmarks.scale.cases import CASES
from benchmarks.scale.planned import Comparison, comparisons

NAMES = ("tokens of the prompt", "tokens of the response", "images", "bytes in the queue")


@pytest.fixture(scope="module")
def lines() -> list[Comparison]:
    return comparisons()


@pytest.mark.parametrize("method", CASES)
def test_tokens_images_and_bytes_are_those_measured(method: str, lines: list[Comparison]) -> None:
    errors = {line.name: line.error for line in lines if line.method == method and line.name in NAMES}
    assert set(errors) == set(NAMES)
    assert all(abs(error) <= 0.15 for error in errors.values()), errors
    assert errors["images"] == 0 and abs(errors["bytes in the queue"]) < 0.01
