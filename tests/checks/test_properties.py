"""What is said of the properties themselves."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from examples.add_a_method.frugal import Frugal
from tests.checks.conftest import Check, failures
from verl_video_tools.checks.properties import PROPERTIES
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.direct import Direct

DOCS = Path(__file__).parents[2] / "docs"
GROUPS = ("config", "prompts", "grammar", "tools", "episode", "tokens", "reward", "groups", "records", "pickling")


def test_each_says_in_a_sentence_what_must_hold_and_why() -> None:
    assert len(PROPERTIES) >= 40
    for each in PROPERTIES.values():
        assert each.group in GROUPS
        assert re.fullmatch(r"[A-Z`][^\n]* because [^\n]*\.", each.must), each.must
        assert each.must.count(". ") == 0, f"{each.name} takes more than a sentence"


def test_the_page_tells_of_each() -> None:
    made = runpy.run_path(str(DOCS / "make_check_method.py"))["page"]()
    assert (DOCS / "check-method.md").read_text(encoding="utf-8") == made, "run python docs/make_check_method.py"
    assert all(f"| `{name}` | {each.must} |" in made for name, each in PROPERTIES.items())


def test_each_is_asked_after_what_it_requires() -> None:
    asked: set[str] = set()
    for name, each in PROPERTIES.items():
        assert set(each.requires) <= asked, name
        asked.add(name)


@dataclass(frozen=True, kw_only=True)
class Unbuildable(Direct):
    name: ClassVar[str] = "unbuildable"

    max_turns: int = 0


def test_a_class_that_cannot_be_built_is_told_once(check: Check) -> None:
    found = check(Unbuildable)
    assert list(failures(found)) == ["config_has_defaults"]
    assert {each.status for each in found.values()} == {"fail", "not applicable"}
    assert len(found) == len(PROPERTIES)


@dataclass(frozen=True, kw_only=True)
class Mute(Direct):
    """Its author's grammar is nobody's."""

    name: ClassVar[str] = "mute"
    oracle: ClassVar[str | None] = None

    def parse(self, text: str) -> vt.ParsedTurn:
        before, mark, answer = text.partition("::")
        return vt.ParsedTurn(thought=before, answer=answer.strip() if mark else None, well_formed=bool(mark))


def test_a_grammar_that_nobody_knows_is_asked_for_an_example(check: Check) -> None:
    found = check(Mute)
    assert list(failures(found)) == ["a_valid_answer_is_found"]
    assert "--turns FILE" in (found["a_valid_answer_is_found"].reason or "")
    assert "a_valid_answer_is_found does not hold" in (found["right_answers_earn_more"].reason or "")


def test_turns_of_the_author_are_taken(check: Check) -> None:
    assert failures(check(Mute, turns=["so:: B"])) == {}

    @dataclass(frozen=True, kw_only=True)
    class Taught(Mute):
        check_examples: ClassVar[tuple[str, ...]] = ("so:: B",)

    found = check(Taught)
    assert list(failures(found)) == ["config_survives_pickling"]  # the class stands in a function
    assert found["right_answers_earn_more"].status == "pass"


@dataclass(frozen=True)
class Again:
    """Shows a picture of the first look again."""

    name: ClassVar[str] = "again"

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """``{"numbers": [place, ...]}``, places from 0. Raises `malformed_call`, `unknown_frame`, `too_many_frames`."""
        numbers = arguments.get("numbers")
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"numbers must be a list, got {numbers!r:.80}")
        if len(numbers) > 8:
            raise vt.CallRejected(vt.CallErrorCode.TOO_MANY_FRAMES, "name 8 numbers at most")
        if not numbers or not all(0 <= number < len(context.shown) for number in numbers):
            raise vt.CallRejected(vt.CallErrorCode.UNKNOWN_FRAME, f"pictures run from 0 to {len(context.shown) - 1}")
        indices = tuple(sorted({context.shown[number].index for number in numbers}))
        size = vt.frame_size(context.info, 1, 3136, context.envelope)
        return vt.ToolPlan(vt.FrameRequest(*size, indices=indices))


@dataclass(frozen=True, kw_only=True)
class LooksAgain(Frugal):
    name: ClassVar[str] = "looks_again"
    check_examples: ClassVar[tuple[str, ...]] = ('<look>{"numbers": [1, 2]}</look>', "<answer>B</answer>")

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {"again": Again()}

    def parse(self, text: str) -> vt.ParsedTurn:
        parsed = super().parse(text)
        return replace(parsed, calls=tuple(replace(each, name="again") for each in parsed.calls))


def test_a_tool_that_names_pictures_shown_is_planned_beside_the_first_look(check: Check) -> None:
    found = check(LooksAgain)
    assert failures(found) == {}
    asked = ("plans_open_no_video", "plans_fit_the_processor", "documented_refusals_are_reached")
    assert [found[name].status for name in asked] == ["pass"] * 3


@dataclass(frozen=True, kw_only=True)
class Unprompted(Direct):
    """Its prompt stands in a file that is not there."""

    name: ClassVar[str] = "unprompted"

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        return [vt.Message("user", (vt.load_prompt("tests", "no_such_prompt.txt", None), sample.question, *images))]


def test_a_file_that_is_missing_is_named(check: Check) -> None:
    reason = failures(check(Unprompted))["prompt_of_any_video"]
    assert reason is not None and "no_such_prompt.txt" in reason
