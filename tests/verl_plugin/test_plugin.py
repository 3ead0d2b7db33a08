"""The plugin as verl loads it, in a fresh interpreter: light, complete, and loud when it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="the plugin is loaded by verl")

pytestmark = pytest.mark.long  # five interpreters import verl

REPO = Path(__file__).parents[2]


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


class Verl:
    """What one interpreter tells: the modules that `import verl` loads, and then what `code` prints, as JSON.

    Most of an interpreter's time goes into that import, so tests share interpreters.
    """

    def __init__(self, code: str = "told = None", **environment: str) -> None:
        imported = "import json, sys\nimport verl\nmodules = list(sys.modules)"
        run = python(f"{imported}\n{code}\nprint('TOLD', json.dumps([modules, told]))", **environment)
        assert run.returncode == 0, run.stderr[-3000:]
        modules, self.told = json.loads(run.stdout.split("TOLD", 1)[1])
        self.modules: set[str] = set(modules)


@pytest.fixture(scope="module")
def without_plugin() -> Verl:
    return Verl(VERL_USE_EXTERNAL_PLUGINS="none")


@pytest.fixture(scope="module")
def with_plugin() -> Verl:
    """Also what verl's engines load, the trainers as verl looks them up, and then every registration, in this order."""
    return Verl("""
import verl.workers.engine
with_engines = list(sys.modules)
from verl.trainer.ppo.v1 import get_trainer_cls
trainers = [get_trainer_cls(name).__name__ for name in ("video_tools", "video_tools_colocate_async")]
from verl_video_tools.verl_plugin.plugin import registrations
told = {"trainers": trainers, "registrations": registrations(), "with_engines": with_engines}
""")


@pytest.fixture(scope="module")
def with_cpu_platform() -> Verl:
    return Verl(VERL_PLATFORM="cpu")


@pytest.mark.parametrize("platform", ["", "cpu"])
def test_import_verl_gets_no_heavier(platform: str, without_plugin: Verl, request: pytest.FixtureRequest) -> None:
    verl: Verl = request.getfixturevalue("with_cpu_platform" if platform else "with_plugin")
    loaded = verl.modules
    assert "verl_video_tools.verl_plugin.plugin" in loaded
    added = loaded - without_plugin.modules
    assert not {name.partition(".")[0] for name in added} & {"vllm", "av", "decord", "openai"}
    assert not any(name.startswith("transformers.models") for name in added)
    assert ("verl_video_tools.verl_plugin.platforms.cpu" in loaded) == (platform == "cpu")
    assert "verl_video_tools.verl_plugin.trainer" not in loaded


def test_the_engine_is_there_with_verls_own(with_plugin: Verl) -> None:
    assert "verl_video_tools.verl_plugin.fsdp_engine" in with_plugin.told["with_engines"]
    assert "verl_video_tools.verl_plugin.packed_attention" not in with_plugin.told["with_engines"], "imports models"


def test_the_trainers_are_there_when_verl_looks_them_up(with_plugin: Verl) -> None:
    assert with_plugin.told["trainers"] == ["VideoToolsTrainer", "VideoToolsColocateAsyncTrainer"]


def test_a_worker_that_unpickles_our_loop_first_can_import_it() -> None:
    run = python("import verl_video_tools.verl_plugin.agent_loop as loop; print(loop.VideoAgentLoop.__name__)")
    assert run.stdout.strip().endswith("VideoAgentLoop"), run.stderr[-3000:]


def test_every_registration_is_found(with_plugin: Verl) -> None:
    registrations = with_plugin.told["registrations"]
    assert len(registrations) >= 5
    assert all(ok is True for _, _, ok, _ in registrations), registrations


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
