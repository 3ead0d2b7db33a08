"""Chromium, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

Chromium = Callable[..., bytes]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Chromium:
    """Function: run Chromium without a window with these arguments; gives its standard output."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(names)} is installed")
    profile = tmp_path_factory.mktemp("profile")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--window-size=1300,900"]

    def run(*arguments: str) -> bytes:
        done = subprocess.run([browser, *options, *arguments], capture_output=True, timeout=100, check=True)
        return done.stdout

    return run
