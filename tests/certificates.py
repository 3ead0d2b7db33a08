"""Clients of the tests trust nobody: reading whom the machine trusts would take most of an evaluation's time.

A conftest of a folder whose tests make clients imports the fixture.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def unread_certificates() -> Iterator[None]:
    """Every client reads all certificates of the machine, and no server of the tests has one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_: None)
        yield
