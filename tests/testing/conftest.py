"""Every test of the checker shares one video."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from verl_video_tools.core.types import Method
from verl_video_tools.testing.run import Finding, findings
from verl_video_tools.testing.world import World

Check = Callable[..., Mapping[str, Finding]]


@pytest.fixture(scope="session")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """`check(cls, turns, settings, model)`: the findings of a method by property."""
    world = World(tmp_path_factory.mktemp("world"))

    def check(
        cls: type[Method], turns: Sequence[str] = (), settings: Mapping[str, Any] | None = None, model: Any = None
    ) -> Mapping[str, Finding]:
        return {finding.property: finding for finding in findings(cls, world, turns, settings, model)}

    return check


def failures(found: Mapping[str, Finding]) -> dict[str, str | None]:
    """Why properties failed, by their names."""
    return {name: finding.reason for name, finding in found.items() if finding.status == "fail"}
