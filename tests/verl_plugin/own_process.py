"""Programs that import vLLM: it warns, and warnings are errors in tests. Each runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]


def last_line_of(*arguments: str, **environment: str) -> str:
    """What `python ARGUMENTS` prints last, run in the checkout with vLLM for CPUs; it has to succeed."""
    variables = {"VERL_PLATFORM": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPO,
        env=os.environ | variables | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]
