"""What is said of the properties themselves."""

from __future__ import annotations

import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

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
