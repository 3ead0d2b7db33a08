"""The plugin as verl loads it, in a fresh interpreter: light, complete, and loud when it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="the plugin is loaded by verl")

REPO = Path(__file__).parents[1]


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter without the shell's platform choice."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("VERL_")}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=REPO,
        env={**variables, "OMP_NUM_THREADS": "1", **environment},
    )


def loaded_modules(code: str, **environment: str) -> set[str]:
    run = python(f"import json, sys\n{code}\nprint('MODULES', json.dumps(list(sys.modules)))", **environment)
    assert run.returncode == 0, run.stderr[-3000:]
    return set(json.loads(run.stdout.split("MODULES", 1)[1]))


@pytest.fixture(scope="module")
def modules_of_verl() -> set[str]:
    return loaded_modules("import verl", VERL_USE_EXTERNAL_PLUGINS="none")


@pytest.mark.parametrize("platform", ["", "cpu"])
def test_import_verl_gets_no_heavier(platform: str, modules_of_verl: set[str]) -> None:
    environment = {"VERL_PLATFORM": platform} if platform else {}
    loaded = loaded_modules("import verl", **environment)
    assert "verl_video_tools.plugin" in loaded
    added = loaded - modules_of_verl
    assert not {name.partition(".")[0] for name in added} & {"vllm", "av", "decord", "open_clip", "openai"}
    assert not any(name.startswith("transformers.models") for name in added)
    assert ("verl_video_tools.platforms.cpu" in loaded) == (platform == "cpu")
    assert "verl_video_tools.trainer" not in loaded


def test_the_trainer_is_there_when_verl_looks_it_up() -> None:
    run = python("from verl.trainer.ppo.v1 import get_trainer_cls; print(get_trainer_cls('video_tools').__name__)")
    assert run.stdout.strip().endswith("VideoToolsTrainer"), run.stderr[-3000:]


def test_a_worker_that_unpickles_our_loop_first_can_import_it() -> None:
    run = python("import verl_video_tools.agent_loop.loop as loop; print(loop.VideoAgentLoop.__name__)")
    assert run.stdout.strip().endswith("VideoAgentLoop"), run.stderr[-3000:]


def test_every_registration_is_found() -> None:
    code = "from verl_video_tools.plugin import registrations\nfor r in registrations(): print(r.ok, *r)"
    run = python(code)
    assert run.returncode == 0, run.stderr[-3000:]
    reports = [line for line in run.stdout.splitlines() if line.startswith(("True", "False"))]
    assert len(reports) >= 4
    assert all(report.startswith("True") for report in reports), reports


def test_a_wrong_verl_version_is_loud() -> None:
    code = """
import importlib.metadata as metadata
real = metadata.version
metadata.version = lambda name: "0.8.0" if name == "verl" else real(name)
import verl
"""
    run = python(code)
    assert "needs verl==0.9.1, found 0.8.0" in run.stderr
    assert "pip install verl==0.9.1" in run.stderr and "vvt doctor" in run.stderr
