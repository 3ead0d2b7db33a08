"""Chromium, where it is installed. With VVT_REQUIRE_CHROMIUM=1 a machine without it fails its tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process_trees import output_of
from tests.viewer_page import Page

Chromium = Callable[..., bytes]
Browse = Callable[..., Page]
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


@pytest.fixture
def browse(chromium: Chromium) -> Browse:
    """The page as Chromium leaves it, opened with a fragment of the address; then a reader's script may act on it."""

    def dump(file: Path, fragment: str, reader: str | None = None) -> Page:
        if reader is not None:
            text = file.read_text(encoding="utf-8")
            file = file.with_name(f"read_{file.name}")
            file.write_text(text.replace("</body>", f"<script>{reader}</script></body>"), encoding="utf-8")
        # Of time that passes as fast as it can: unfolding draws a moment later.
        options = ["--dump-dom", "--virtual-time-budget=2000"]
        return Page(chromium(*options, f"{file.as_uri()}#{fragment}").decode("utf-8", errors="replace"))

    return dump
