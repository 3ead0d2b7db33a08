"""A rank that fails, or hangs, ends all, with what it printed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.verl_plugin.ranks import run_apart
from tests.waiting import wait_until

pytestmark = pytest.mark.slow  # the process that they are forked from imports verl


def rank(does: str, started: Path) -> None:
    """End, wait, or fail once another waits: one that is ended before it printed has nothing to tell."""
    print("this one", does, "with", os.environ["VERL_PLATFORM"], flush=True)
    if does == "fails":
        wait_until(started.exists, "the one that waits", 110)
        raise ValueError("planted")
    if does == "waits":
        started.touch()
        time.sleep(600)


def test_one_that_fails_ends_those_that_wait_for_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    run_apart(rank, ("ends", started), timeout_seconds=110)
    with pytest.raises(AssertionError, match=r"(?s)this one waits.*this one fails with cpu.*ValueError: planted"):
        run_apart(rank, ("ends", started), ("waits", started), ("fails", started), timeout_seconds=110)


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    run_apart(rank, ("ends", tmp_path), timeout_seconds=110)  # its seconds do not begin before verl is imported
    with pytest.raises(AssertionError, match=r"(?s)not done within 3 s.*this one waits"):
        run_apart(rank, ("waits", tmp_path / "started"), timeout_seconds=3)
