"""Which results count in tables: those of the schedule's runs, made by the plans as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from examples.learning_curve.plans import PLAN_BEFORE, plan_of
from examples.learning_curve.schedule import LAST_COMMIT, METHODS, RECORDED, SCHEDULE
from examples.learning_curve.stored import Result

KINDS = {
    "at_time": "at a time",
    "between_things": "between two",
    "order": "order of two",
    "on_card": "on a card",
    "direct": "initial frames tell",
}
"""Kinds of questions as tables call them, in their order there."""
_ONLY_MEASURING = ("measures_base", "compares_without_tools", "interim_questions")
"""Fields of a plan that change nothing of training; the first is one of earlier plans."""


@dataclass(frozen=True)
class Chosen:
    """Results, and which of them count.

    Attributes:
        results: all of learning runs, by the name of their file.
        remarks: why a result does not count, by the same name.
        claims: results of `claims`, by the name of their file; `claims.report` tells which decide.
    """

    results: Mapping[str, Result]
    remarks: Mapping[str, str]
    claims: Mapping[str, Result]

    @property
    def counted(self) -> list[Result]:
        return [result for name, result in self.results.items() if name not in self.remarks]

    @property
    def scheduled(self) -> dict[str, list[Result]]:
        """Of every method of the schedule, in its order."""
        return {method: self.of(method) for method in dict.fromkeys(planned.method for planned in SCHEDULE)}

    @property
    def by_method(self) -> dict[str, list[Result]]:
        """The same, then recorded runs."""
        return self.scheduled | {planned.method: self.of(planned.method) for planned in RECORDED}

    @property
    def is_complete(self) -> bool:
        """Whether each of the five methods has a result."""
        return all(self.of(method) for method in METHODS)

    def of(self, method: str) -> list[Result]:
        return [result for result in self.counted if result["method"] == method]

    def remark(self, name: str) -> str:
        """Why a result does not count, or which commit has the code that it needs."""
        result = self.results[name]
        shown = f"code at `{LAST_COMMIT}`" if (result["method"], result["seed"]) in RECORDED else ""
        return self.remarks.get(name, shown)


def choose(results: Mapping[str, Result], claims: Mapping[str, Result] | None = None) -> Chosen:
    remarks: dict[str, str] = {}
    first: dict[tuple[str, int], str] = {}
    for name, result in results.items():
        run = result["method"], result["seed"]
        if run not in SCHEDULE + RECORDED:
            remarks[name] = "not of the schedule"
        elif not has_present_plan(result):
            remarks[name] = "other settings"
        elif first.setdefault(run, name) != name:  # which run counts is not chosen by what came out
            remarks[name] = f"repeats `{first[run]}`"
    return Chosen(results, remarks, claims or {})


def has_present_plan(result: Result) -> bool:
    """Whether a learning run was made by the present plan, apart from what that measures. A recorded run has the plan
    that it was made by.

    Code and recipes may have changed since: results tell their commits.
    """
    if (result["method"], result["seed"]) in RECORDED:
        return True
    return _training(result["plan"]) == _training(plan_of(result["method"]).written())


def _training(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (PLAN_BEFORE | dict(plan)).items() if name not in _ONLY_MEASURING}
