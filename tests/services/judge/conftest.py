"""A judge's server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.judge_server import JudgeServer


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server
