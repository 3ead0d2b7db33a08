"""Where a result comes from: the code, the machine, and the time that each stage took."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from verl_video_tools.core.files import write_json

NO_CODE = (":!docs", ":!*.md", ":!examples/learning_curve/results")
"""What may differ from the commit: pages and results change from run to run."""
REPO = Path(__file__).resolve().parents[2]


def commit() -> str:
    """The checkout's commit, with `+` behind it where tracked files differ from it; `unknown` outside of a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(REPO), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *NO_CODE)
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """Cores that this process may use, the processor's name, and memory."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": names[0].partition(":")[2].strip() if names else "unknown",
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
    }


class Starts:
    """A file in a run's folder that counts the starts of its stages, and tells at which commits and on which machines
    they were made."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "starts.json"

    def add(self, stage: str) -> None:
        told = self._read()
        told["starts"][stage] = told["starts"].get(stage, 0) + 1
        for name, now in (("commits", commit()), ("machines", machine())):
            if now not in told[name]:
                told[name].append(now)
        write_json(self._path, told)

    def told(self, stages: Sequence[str]) -> dict[str, Any]:
        """`commits`, `machines`, and `stages_resumed`: those that were started more than once, so that their minutes
        are of the last start alone."""
        told = self._read()
        return {
            "commits": told["commits"],
            "machines": told["machines"],
            "stages_resumed": [stage for stage in stages if told["starts"].get(stage, 0) > 1],
        }

    def _read(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"commits": [], "machines": [], "starts": {}}
        return json.loads(self._path.read_text()) if self._path.exists() else empty
