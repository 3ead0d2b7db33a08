"""The command line that the tests of `vvt eval` give, and what their server answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.judge_server import JudgeServer
from tests.turns.tagged import answer
from verl_video_tools.core.types import RolloutLimits
from verl_video_tools.data.formats import BenchmarkFiles

ZOOM = '<think>there</think><video_zoom>{"segment": [1.0, 3.0], "fps": 2}</video_zoom>'
ZOOMED_FRAMES = 4
GLANCE = 2


# The questions of the sample: right at once, right after a look, wrong.
BOWLS, WHEEL, BOAT = "How many bowls", "What stands beside", "What happens right after"
SCRIPTS = {BOWLS: [answer("C")], WHEEL: [ZOOM, answer("B. A bucket.")], BOAT: [ZOOM, ZOOM, answer("D")]}


def command(files: BenchmarkFiles, out: Path, server: JudgeServer, *options: str) -> list[str]:
    paths = [f"--annotations={files.annotations}", f"--videos={files.videos}"]
    method = ["--method=videozoomer", f"--set=initial_frames={GLANCE}"]
    return ["eval", "--benchmark=video-mme", *paths, f"--out={out}", *method, f"--base-url={server.base_url}", *options]


def result_of(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / "results.json").read_text())
    return result


def serving(server: JudgeServer, asked: list[Any]) -> Any:
    """Stands for `served_model`, and writes down what it was asked for."""

    @asynccontextmanager
    async def served_model(
        model: str, log: Path, budget: RolloutLimits, options: Mapping[str, Any], name: str, takes_video: bool
    ) -> AsyncIterator[str]:
        asked.extend([model, log, budget.images, options, name, takes_video])
        yield server.base_url
        asked.append(f"ended after {len(server.requests)} requests")

    return served_model
