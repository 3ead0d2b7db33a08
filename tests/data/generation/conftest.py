"""The synthetic worlds that experts are asked about."""

from __future__ import annotations

import pytest

from tests.data.generation.world import SETTINGS, World, make_world


@pytest.fixture(scope="module", params=list(SETTINGS))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def zoomer(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world("videozoomer", tmp_path_factory.mktemp("zoomer"))
