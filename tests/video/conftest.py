"""Test videos, written once per session, each with its reference: every frame decoded in sequence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.videos.kinds import REPRESENTATIVE, WRITERS
from tests.videos.reference import Reference


@pytest.fixture(scope="session")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """The reference of a file of `WRITERS` by name; writes the file when it is first asked for."""
    folder = tmp_path_factory.mktemp("videos")
    references: dict[str, Reference] = {}

    def get(name: str) -> Reference:
        if name not in references:
            references[name] = Reference(WRITERS[name](folder / name))
        return references[name]

    return get


@pytest.fixture(scope="session", params=REPRESENTATIVE)
def reference(request: pytest.FixtureRequest, reference_of: Callable[[str], Reference]) -> Reference:
    """Each representative kind of file in turn."""
    return reference_of(request.param)
