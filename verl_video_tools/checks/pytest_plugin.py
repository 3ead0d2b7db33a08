"""Tests of a method for the package that brings it: one for each property.

    from verl_video_tools.checks.pytest_plugin import method_tests

    test_my_method = method_tests("my_package:MyMethod")

pytest finds this module by its entry point, and imports it at every start: so it imports nothing else at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verl_video_tools.checks.run import Finding
    from verl_video_tools.core.types import Method

Check = Callable[..., "Mapping[str, Finding]"]


@pytest.fixture(scope="session")
def checked_methods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    """Findings of a method by property; each method is checked once, on a video that all share."""
    from verl_video_tools.checks.run import check_method

    made: dict[Any, Mapping[str, Finding]] = {}
    folder: Path = tmp_path_factory.mktemp("check_method")

    def check(method: str | type[Method], turns: Sequence[str], settings: Mapping[str, Any]) -> Mapping[str, Finding]:
        key = (method, tuple(turns), repr(sorted(settings.items())))
        if key not in made:
            findings = check_method(method, turns=turns, settings=settings, folder=folder)
            made[key] = {finding.property: finding for finding in findings}
        return made[key]

    yield check


def method_tests(
    method: str | type[Method], *, turns: Sequence[str] = (), settings: Mapping[str, Any] | None = None
) -> Callable[..., None]:
    """A test function with one test for each property, to be given a name that pytest collects.

    Args:
        method: as `checks.run.check_method` takes it.
        turns: texts of turns that call or answer, where the method's class has no `check_examples`.
        settings: fields that differ from the defaults.
    """
    from verl_video_tools.checks.properties import PROPERTIES

    @pytest.mark.parametrize("property_name", list(PROPERTIES))
    def test_property(property_name: str, checked_methods: Check) -> None:
        finding = checked_methods(method, turns, settings or {})[property_name]
        told = f"{PROPERTIES[property_name].must}\n{finding.reason}"
        if finding.status == "fail":
            pytest.fail(told, pytrace=False)
        if finding.status == "not applicable":
            pytest.skip(finding.reason or "not applicable")

    return test_property
