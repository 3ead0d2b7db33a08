"""Tests of a method for the package that brings it: one for each property.

    from verl_video_tools.testing.pytest_plugin import method_tests

    test_my_method = method_tests("my_package:MyMethod")

pytest imports this module at every start through its entry point, so the top imports nothing else of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verl_video_tools.core.types import Method
    from verl_video_tools.testing.run import Finding

Check = Callable[..., "Mapping[str, Finding]"]


@pytest.fixture(scope="session")
def checked_methods(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Findings of a method by property. Each method is checked once per session."""
    from verl_video_tools.testing.run import check_method

    made: dict[Any, Mapping[str, Finding]] = {}
    folder = tmp_path_factory.mktemp("check_method")

    def check(method: str | type[Method], turns: Sequence[str], settings: Mapping[str, Any]) -> Mapping[str, Finding]:
        key = (method, tuple(turns), repr(sorted(settings.items())))
        if key not in made:
            findings = check_method(method, turns=turns, settings=settings, folder=folder)
            made[key] = {finding.property: finding for finding in findings}
        return made[key]

    return check


def method_tests(
    method: str | type[Method], *, turns: Sequence[str] = (), settings: Mapping[str, Any] | None = None
) -> Callable[..., None]:
    """A test function with one test for each property. Assign it to a name that pytest collects.

    Args:
        method: a class, its name, or its Python path `module:Class`.
        turns: example turns beside those of the class attribute `check_examples`.
        settings: fields that differ from the defaults.
    """
    from verl_video_tools.testing.run import PROPERTIES

    @pytest.mark.parametrize("property_name", list(PROPERTIES))
    def test_property(property_name: str, checked_methods: Check) -> None:
        finding = checked_methods(method, turns, settings or {})[property_name]
        if finding.status == "fail":
            pytest.fail(f"{PROPERTIES[property_name].must}\n{finding.reason}", pytrace=False)
        if finding.status == "not applicable":
            pytest.skip(finding.reason or "not applicable")

    return test_property
