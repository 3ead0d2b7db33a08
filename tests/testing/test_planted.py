"""Each planted fault is caught by the property that is meant for it, and by no other.

Ten of the faults were planted by somebody who had read neither the checker nor its own planted faults. The checker
found five of these when it first saw them; properties for the other five were written afterwards.
"""

from __future__ import annotations

import pytest

from tests.testing.conftest import Check, failures
from tests.testing.planted import FAULTS, config_and_prompt, grammar_and_tools, rollout_and_reward
from verl_video_tools.core.types import Method
from verl_video_tools.testing.run import PROPERTIES

CLEAN = [
    config_and_prompt.FrameLadder,
    grammar_and_tools.Measuring,
    rollout_and_reward.Brief,
    rollout_and_reward.Curious,
    rollout_and_reward.Looking,
    rollout_and_reward.Remembering,
]
"""Correct methods with parts that no packaged method has; the faults of these parts are planted in subclasses."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught_by_name(fault: type[Method], check: Check) -> None:
    found = failures(check(fault))
    assert list(found) == [FAULTS[fault]], found


@pytest.mark.slow
@pytest.mark.parametrize("method", CLEAN)
def test_a_clean_counterpart_passes(method: type[Method], check: Check) -> None:
    found = check(method)
    assert failures(found) == {}
    properties = {name for fault, name in FAULTS.items() if issubclass(fault, method)}
    assert {found[name].status for name in properties} <= {"pass"}


def test_properties_that_catch_no_fault_are_few() -> None:
    """The others are what the rest builds on."""
    assert PROPERTIES.keys() - set(FAULTS.values()) == {"rollouts_end"}
