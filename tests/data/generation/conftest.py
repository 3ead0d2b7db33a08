"""The synthetic worlds that experts are asked about."""

from __future__ import annotations

import pytest

from tests.data.generation.world import SETTINGS, World, make_world


@pytest.fixture(scope="session")
def zoomer(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world("videozoomer", tmp_path_factory.mktemp("videozoomer"))


@pytest.fixture(scope="session", params=list(SETTINGS))
def world(request: pytest.FixtureRequest, zoomer: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    return zoomer if request.param == "videozoomer" else make_world(request.param, tmp_path_factory.mktemp("world"))
