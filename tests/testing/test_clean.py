"""No clean method fails: those of the package, in their variants, and those of the examples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.testing.conftest import Check, failures
from verl_video_tools.methods import METHOD_NAMES, get_method, method_class
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose import composition
from verl_video_tools.methods.longvt import LongVT
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.testing.run import PROPERTIES
from verl_video_tools.testing.run import check as check_property
from verl_video_tools.testing.subject import Subject
from verl_video_tools.testing.world import World
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens

EXAMPLES = ["examples.add_a_method.frugal:Frugal", "examples.add_a_tool.look_around:LongVTLookAround"]
GROUP = {
    "contexts_follow_from_the_dialogue",
    "group_rewards_follow_the_rollout",
    "turn_rewards_stay_with_their_turns",
}
STOP = {"stop_strings_end_a_call"}
NOT_APPLICABLE = {
    "framethinker": GROUP | STOP,
    "videozoomer": GROUP,
    "longvt": GROUP | STOP,
    "framemind": GROUP | STOP,
    "videobrain": GROUP | STOP,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("longvt", {"end_on_call_error": True, "time_reward": "tool"}),
    ("framemind", {"context": "last_evidence", "rung": 3}),
    (
        "framethinker",
        {"end_on_call_error": False, "ccv": False, "answer_grading": "choice", "bonus_condition": "always"},
    ),
    ("videozoomer", {"end_on_call_error": True, "bonus_condition": "always"}),
    ("videobrain", {"end_on_call_error": False, "format_gate": False}),
    ("framemind", {"context": "initial_plus_last", "rung": 3}),
    ("direct", {"answering": "cot"}),
]


@dataclass(frozen=True, kw_only=True)
class Asking(LongVT):
    """The packaged tool that asks a model about frames, beside the crop."""

    name: ClassVar[str] = "asking"
    asks_model: ClassVar[bool] = True
    check_examples: ClassVar[tuple[str, ...]] = (
        '<tool_call>{"name": "ask_model", "arguments": {"question": "What is it?", "start_time": 15, "end_time": 30}}'
        "</tool_call>",
    )

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {**super().tools(info), vt.AskModel.name: vt.AskModel()}

    def tool_schemas(self) -> list[dict[str, Any]]:
        about = vt.AskModel.description
        return [*super().tool_schemas(), vt.tool_schema(about.name, about.description, about.parameters)]


@pytest.mark.slow
def test_a_method_that_asks_a_model_passes(check: Check) -> None:
    """Tools that look at pixels: `planted.grammar_and_tools.Measuring`; ParaVT: `tests/examples/test_paravt.py`."""
    assert failures(check(Asking)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*METHOD_NAMES, *EXAMPLES])
def test_no_clean_method_fails(name: str, check: Check) -> None:
    found = check(method_class(name))
    assert failures(found) == {}
    if name in NOT_APPLICABLE:
        assert {each.property for each in found.values() if each.status == "not applicable"} == NOT_APPLICABLE[name]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_no_variant_fails(name: str, settings: dict[str, Any], check: Check) -> None:
    assert failures(check(method_class(name), settings=settings)) == {}


def test_the_composition_for_the_tiny_model_fits_with_its_processor(check: Check) -> None:
    model = load_model_tokens(str(base_model_dir("qwen2_5_vl")))
    assert failures(check(method_class("compose"), settings={"file": "demo"}, model=model)) == {}


def test_a_prompt_beyond_its_budget_names_the_assumed_processor(tmp_path: Path) -> None:
    text = (Path(composition.__file__).parent / "default.yaml").read_text(encoding="utf-8")
    limits = re.search(r"limits: \{prompt_tokens: (\d+)", text)
    assert limits is not None
    tight = tmp_path / "tight.yaml"
    tight.write_text(text.replace(limits[0], "limits: {prompt_tokens: 100"), encoding="utf-8")
    method, world = get_method("compose", file=str(tight)), World(tmp_path)
    for model in (None, load_model_tokens(str(base_model_dir("qwen2_5_vl")))):
        reason = check_property(PROPERTIES["prompt_fits_the_recipe"], Subject(method, world, (), model), {}).reason
        assert reason is not None and "raise recipe_budget, or show less" in reason
        assert ("`--processor`" in reason) == (model is None)
