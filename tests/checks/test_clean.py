"""No clean method fails: those of the package, in their variants, and those of the examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.checks.conftest import Check, failures
from tests.checks.test_planted import SMALL_FRAMES
from verl_video_tools.checks.properties import PROPERTIES
from verl_video_tools.checks.run import ask
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.world import World
from verl_video_tools.methods import METHOD_NAMES, get_method, method_class
from verl_video_tools.methods.compose import composition
from verl_video_tools.methods.compose.composition import PACKAGED
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

EXAMPLES = ["examples.add_a_method.frugal:Frugal", "examples.add_a_tool.look_around:LongVTLookAround"]
NO_GROUP = {
    "group_rewards_are_given",
    "group_rewards_follow_the_rollout",
    "refused_calls_earn_nothing_in_a_group",
}
"""Of a method that compares no rollouts."""
NO_TEXT = "observations_tell_the_text_of_the_call"
"""Of a method whose tools show frames, or tell by `result`."""
ONE_CALL = "observations_answer_every_call"
"""Of a method whose turns hold one call."""
NOT_ASKED = {
    "framethinker": {"stop_strings_end_a_call", "stop_strings_are_kept", "refusals_say_why", ONE_CALL},
    "videozoomer": {"answers_before_replies_do_not_execute", ONE_CALL},
    "longvt": {"stop_strings_end_a_call", "stop_strings_are_kept", "answers_before_replies_do_not_execute"},
    "framemind": {"templates_can_be_replaced", "stop_strings_end_a_call", "stop_strings_are_kept"},
    "videobrain": {
        "stop_strings_end_a_call",
        "stop_strings_are_kept",
        "refusals_say_why",
        "answers_before_replies_do_not_execute",
        "rows_without_annotations_are_scored",
        ONE_CALL,
    },
}
"""What cannot be asked of a method; all else is."""

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("longvt", {"end_on_call_error": True, "crop_choice": "best", "tell_video_path": True, "time_reward": "tool"}),
    ("framemind", {"context": "last_evidence", "bad_calls": "void", "rung": 3, "empty_clip": "error", **SMALL_FRAMES}),
    ("compose", {"file": "spatial"}),
]
MORE_VARIANTS: list[tuple[str, dict[str, Any]]] = [
    (
        "framethinker",
        {"end_on_call_error": False, "ccv": False, "answer_grading": "choice", "bonus_condition": "always"},
    ),
    ("videozoomer", {"end_on_call_error": True, "bonus_condition": "always"}),
    ("videobrain", {"end_on_call_error": False, "format_gate": False}),
    ("framemind", {"context": "initial_plus_last", "rung": 3}),
    ("direct", {"answering": "cot"}),
    *(("compose", {"file": name}) for name in PACKAGED if name not in ("default", "spatial")),
]
"""What changes with the checker alone: the tests of these methods and compositions ask for more."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*METHOD_NAMES, *EXAMPLES])
def test_no_clean_method_fails(name: str, check: Check) -> None:
    found = check(method_class(name))
    assert failures(found) == {}
    if name in NOT_ASKED:
        not_asked = {each.property for each in found.values() if each.status == "not applicable"}
        assert not_asked == NOT_ASKED[name] | NO_GROUP | {NO_TEXT}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"), [*VARIANTS, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE_VARIANTS)]
)
def test_no_variant_fails(name: str, settings: dict[str, Any], check: Check) -> None:
    assert failures(check(method_class(name), settings=settings)) == {}


def test_the_composition_for_the_tiny_model_fits_with_its_processor(check: Check) -> None:
    model = load_model_tokens(str(base_model_dir("qwen2_5_vl")))
    assert failures(check(method_class("compose"), settings={"file": "demo"}, model=model)) == {}


def test_a_prompt_beyond_its_budget_tells_of_the_processor_that_was_assumed(tmp_path: Path) -> None:
    text = (Path(composition.__file__).parent / "default.yaml").read_text(encoding="utf-8")
    limits = re.search(r"limits: \{prompt_tokens: (\d+)", text)
    assert limits is not None
    tight = tmp_path / "tight.yaml"
    tight.write_text(text.replace(limits[0], "limits: {prompt_tokens: 100"), encoding="utf-8")
    method, world = get_method("compose", file=str(tight)), World(tmp_path)
    fits = PROPERTIES["prompt_fits_the_recipe"]
    for model in (None, load_model_tokens(str(base_model_dir("qwen2_5_vl")))):
        reason = ask(fits, Subject(method, world, (), model), set()).reason
        assert reason is not None and "reserve more, or show less" in reason
        assert ("(`--processor`)" in reason) == (model is None)


@pytest.mark.slow
def test_calls_that_choose_between_arguments_are_found(check: Check, tmp_path: Path) -> None:
    """Which a call needs is not in the description, and some refusals are those of another choice alone."""
    text = (Path(composition.__file__).parent / "default.yaml").read_text(encoding="utf-8")
    file = tmp_path / "zooming.yaml"
    file.write_text(text.replace("tools:\n", "tools:\n  - {name: zoom, frame_by: either}\n", 1), encoding="utf-8")
    found = check(method_class("compose"), settings={"file": str(file)})
    assert failures(found) == {}
    assert found["documented_refusals_are_reached"].status == "pass"
