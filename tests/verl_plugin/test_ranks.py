"""A rank that fails, or hangs, ends all, with what it printed."""

from __future__ import annotations

import os
import time

import pytest

from tests.verl_plugin.ranks import run_apart

pytestmark = pytest.mark.slow  # the process that they are forked from imports verl


def rank(does: str) -> None:
    print("this one", does, "with", os.environ["VERL_PLATFORM"], flush=True)
    if does == "fails":
        raise ValueError("planted")
    if does == "waits":
        time.sleep(600)


def test_one_that_fails_ends_those_that_wait_for_it() -> None:
    run_apart(rank, ("ends",), timeout_seconds=110)
    with pytest.raises(AssertionError, match=r"(?s)this one waits.*this one fails with cpu.*ValueError: planted"):
        run_apart(rank, ("ends",), ("waits",), ("fails",), timeout_seconds=110)


def test_one_that_hangs_is_ended() -> None:
    with pytest.raises(AssertionError, match=r"(?s)not done within 3 s.*this one waits"):
        run_apart(rank, ("waits",), timeout_seconds=3)
