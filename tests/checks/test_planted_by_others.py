"""Ten faults planted by someone who had read neither the checker nor its own planted faults.

They were committed before the checker was run on them. As it stood it caught five of the ten: four by a property that
names the fault, and `plans_kept_across_videos` by where it shows, on the next video (two properties failed there; one
now requires the other). The other five passed every property. Those that catch them now were written afterwards, so
only the five of `CAUGHT_AS_IT_STOOD` say how many unforeseen faults a finished checker finds.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.checks.conftest import Check, failures
from tests.checks.test_planted import SMALL_FRAMES
from verl_video_tools.checks.properties import PROPERTIES
from verl_video_tools.methods.framemind import FrameMind

CAUGHT_AS_IT_STOOD = {
    "braces_in_question": "prompt_asks_any_question",
    "labels_by_position": "observations_tell_true_times",
    "plans_kept_across_videos": "plans_lie_in_the_video",
    "silent_judge_is_wrong": "failing_judges_are_told",
    "tool_knows_the_truth": "plans_do_not_read_the_truth",
}
CAUGHT_AFTERWARDS = {
    "bonus_in_sorted_order": "group_rewards_follow_the_rollout",
    "curiosity_for_refused_calls": "refused_calls_earn_nothing_in_a_group",
    "first_reply_only": "observations_answer_every_call",
    "ladder_of_one": "groups_of_any_size_are_sampled",
    "thought_tag_left": "thought_tag_is_that_of_the_grammar",
}
CAUGHT_BY = {**CAUGHT_AS_IT_STOOD, **CAUGHT_AFTERWARDS}


def test_each_file_has_its_property() -> None:
    files = {path.stem for path in (Path(__file__).parent / "planted_by_others").glob("[a-z]*.py")}
    assert files == CAUGHT_BY.keys() and len(files) == 10
    assert set(CAUGHT_BY.values()) <= PROPERTIES.keys()


@pytest.mark.long
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_fault_planted_by_others_is_caught_by_name(name: str, check: Check) -> None:
    planted = import_module(f"tests.checks.planted_by_others.{name}").Planted
    found = failures(check(planted, settings=SMALL_FRAMES if issubclass(planted, FrameMind) else None))
    assert list(found) == [CAUGHT_BY[name]], found


@pytest.mark.long
@pytest.mark.parametrize("name", ["bonus_in_sorted_order", "curiosity_for_refused_calls", "ladder_of_one"])
def test_its_clean_counterpart_passes(name: str, check: Check) -> None:
    """The other counterparts are methods of the package (`test_clean.py`)."""
    found = check(import_module(f"tests.checks.planted_by_others.{name}").Clean)
    assert failures(found) == {}
    assert found[CAUGHT_BY[name]].status == "pass"
