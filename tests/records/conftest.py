"""Chromium, where it is installed. With VVT_REQUIRE_CHROMIUM=1 a machine without it fails its tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from tests.process_trees import output_of

Chromium = Callable[..., bytes]
CHROMIUM_SECONDS = float(os.environ.get("VVT_TEST_CHROMIUM_SECONDS", "100"))
"""For one page, below the timeout of a test."""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Chromium:
    """Function: run Chromium without a window with these arguments; gives its standard output."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        missing = f"none of {', '.join(names)} is installed"
        if os.environ.get("VVT_REQUIRE_CHROMIUM", "0") != "0":
            pytest.fail(f"{missing}, and VVT_REQUIRE_CHROMIUM asks for it")
        pytest.skip(missing)
    profile = tmp_path_factory.mktemp("profile")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--window-size=1300,900"]

    def run(*arguments: str) -> bytes:
        return output_of([browser, *options, *arguments], timeout_seconds=CHROMIUM_SECONDS)

    return run
