"""Each planted fault is caught by the property that is meant for it, and by no other."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.checks.conftest import Check, failures
from verl_video_tools.checks.properties import PROPERTIES
from verl_video_tools.methods.framemind import FrameMind

SMALL_FRAMES = {"low": [8, 56], "high": [4, 112], "tool_side_pixels": 112}
"""Of FrameMind, whose own ones take seconds to decode."""

FAULTS = sorted(path.stem for path in (Path(__file__).parent / "planted").glob("[a-z]*.py"))
QUICK = {"answer_holds_the_truth", "frames_out_of_order", "keeps_a_lock"}
"""Looked for in every run; the others change with the checker alone."""


def test_there_are_enough_faults_for_different_properties() -> None:
    caught = [import_module(f"tests.checks.planted.{name}").CAUGHT_BY for name in FAULTS]
    assert len(FAULTS) >= 20
    assert set(caught) <= PROPERTIES.keys() and len(set(caught)) >= 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in FAULTS]
)
def test_a_planted_fault_is_caught_by_name(name: str, check: Check) -> None:
    fault = import_module(f"tests.checks.planted.{name}")
    settings = SMALL_FRAMES if issubclass(fault.Planted, FrameMind) else None
    found = failures(check(fault.Planted, settings=settings))
    assert list(found) == [fault.CAUGHT_BY], found
