"""The job's files are well-formed; a stub stands for `ray`. A real cluster: tests/integration/test_cluster.py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from ray.runtime_env import RuntimeEnv

from tests.examples.conftest import EXAMPLES

REPO = EXAMPLES.parent
FOLDER = EXAMPLES / "ray_job"
STUB = '#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n'


def submit(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    stub = tmp_path / "ray"
    stub.write_text(STUB)
    stub.chmod(0o755)
    return subprocess.run(
        ["bash", str(FOLDER / "submit.sh"), *words],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=tmp_path,
    )


def test_ray_accepts_the_runtime_environment() -> None:
    fields = yaml.safe_load((FOLDER / "runtime_env.yaml").read_text())
    environment = RuntimeEnv(**{**fields, "working_dir": str(REPO)})
    assert environment["env_vars"] == {"HF_HUB_OFFLINE": "1"}
    assert fields["working_dir"] == ".", "submit.sh goes to the root of the checkout"
    needed = ["recipes", "examples", "verl_video_tools"]
    assert not {f"/{name}" for name in needed} & set(fields["excludes"])
    assert all((REPO / name).is_dir() for name in needed)


def test_what_is_submitted(tmp_path: Path) -> None:
    done = submit(tmp_path, "OUTPUT_DIR=/shared/out puts", "NNODES=2", "framethinker_grpo", "trainer.save_freq=5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["job", "submit", "--runtime-env", "examples/ray_job/runtime_env.yaml", "--"],
        *["env", "OUTPUT_DIR=/shared/out puts", "NNODES=2", "bash", "recipes/framethinker_grpo.sh"],
        "trainer.save_freq=5",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["OUTPUT_DIR=/shared", "no_such_grpo"], "there is no recipes/no_such_grpo.sh"),
        (["framethinker_grpo"], "OUTPUT_DIR must be an absolute path"),
        (["OUTPUT_DIR=outputs", "framethinker_grpo"], "OUTPUT_DIR must be an absolute path"),
        (["OUTPUT_DIR=/shared"], "name of a recipe"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: list[str], reason: str) -> None:
    done = submit(tmp_path, *words)
    assert done.returncode != 0 and reason in done.stderr and done.stdout == ""
