"""The program that recipes start: its variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("rows", ["none", "0", "-3", "1.5"])
def test_a_number_of_rows_that_is_none(rows: str) -> None:
    command = [sys.executable, "-m", "verl_video_tools.dry_run", "--kind", "grpo", "--device", "cpu", "--", "a=b"]
    environment = {**os.environ, "DRY_RUN_ROWS": rows}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"DRY_RUN_ROWS must be a whole number above 0, got {rows!r}\n"
