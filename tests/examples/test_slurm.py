"""What the job script starts where; stubs stand for Slurm's commands and for `ray`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES

FOLDER = EXAMPLES / "slurm"
STUBS = {
    "srun": """
        echo "srun $*" >> calls
        while [ "${1#-}" != "$1" ]; do case $1 in --nodes=*) nodes=${1#*=} ;; esac; shift; done
        if [ "$1" = ray ]; then echo "token ${#RAY_AUTH_TOKEN}" >> calls; exec sleep 1; fi
        for node in $(seq 0 $((nodes - 1))); do SLURM_NODEID=$node "$@"; done
    """,
    "scontrol": 'echo "scontrol $*" >> calls',
    "python": """
        if [ "$1" = -c ]; then echo 0123456789; exit; fi
        echo "python $*" >> calls
        until [ "$(grep -c ^token calls)" = $(($3 > 1 ? 2 : 1)) ]; do sleep 0.1; done
    """,
}
RECIPES = {
    "some_sft": 'echo "rank $NODE_RANK of $NNODES, $NDEVICES_PER_NODE devices, $MASTER_ADDR: $*" >> calls',
    "some_grpo": 'echo "$RAY_ADDRESS $NNODES x $NDEVICES_PER_NODE: $*" >> calls; exit 3',
    "long_grpo": """
        trap 'sleep 0.5; echo saved >> calls; exit 143' TERM
        touch ready
        for i in $(seq 100); do sleep 0.1; done
    """,
}
SLURM = {
    **{"SLURMD_NODENAME": "n1", "SLURM_NNODES": "3", "SLURM_CPUS_ON_NODE": "64", "SLURM_GPUS_ON_NODE": "8"},
    **{"SLURM_JOB_ID": "7", "OUTPUT_DIR": "/shared/outputs"},
}
ON_NODES = "srun --overlap --nodes={n} --ntasks={n} --cpus-per-task=64 --kill-on-bad-exit=1"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with recipes that say what they got; Slurm runs a copy of the script that lies elsewhere."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "recipes").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for name, text in RECIPES.items():
        (tmp_path / "recipes" / f"{name}.sh").write_text(text)
    shutil.copy(FOLDER / "train.sbatch", tmp_path / "slurm_script")
    return tmp_path


def start(checkout: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    paths = {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "HOME": str(checkout)}
    own = {"SLURM_SUBMIT_DIR": str(checkout), "VIRTUAL_ENV": "/environment"}
    with (checkout / "stderr").open("w") as stderr:
        return subprocess.Popen(
            ["bash", str(checkout / "slurm_script"), *words],
            env={**paths, **own, **SLURM, **variables},
            cwd="/",
            stderr=stderr,
            text=True,
        )


def calls(checkout: Path) -> list[str]:
    return (checkout / "calls").read_text().splitlines()


def test_fine_tuning_is_a_process_on_each_node(checkout: Path) -> None:
    assert start(checkout, "some_sft", "a=b", "c=d e").wait(30) == 0
    srun, *ranks = calls(checkout)
    assert srun.startswith(f"{ON_NODES.format(n=3)} bash -c ")
    assert ranks == [f"rank {rank} of 3, 8 devices, n1: a=b c=d e" for rank in range(3)]


def test_reinforcement_learning_joins_a_cluster_of_the_jobs_nodes(checkout: Path) -> None:
    """The exit code is the recipe's."""
    assert start(checkout, "some_grpo", "a=b", RAY_PORT="6400", NDEVICES_PER_NODE="4").wait(30) == 3
    ray = "ray start --block --num-cpus=64"
    told = calls(checkout)
    assert sorted(line for line in told if line.startswith("srun")) == [
        f"{ON_NODES.format(n=1)} --nodelist=n1 {ray} --head --port=6400",
        f"{ON_NODES.format(n=2)} --exclude=n1 {ray} --address=n1:6400",
    ]
    assert told.count("token 10") == 2, "one for both"
    assert "python examples/slurm/wait_for_nodes.py n1:6400 3" in told
    assert "n1:6400 3 x 4: --save-on-signal video_tools.cores_per_node=64 a=b" in told
    assert not any(line.startswith("scontrol") for line in told)


def test_a_recipe_may_lie_elsewhere(checkout: Path, tmp_path: Path) -> None:
    own = tmp_path / "own_grpo.sh"
    own.write_text('echo "own: $*" >> calls')
    assert start(checkout, str(own), "a=b", SLURM_NNODES="1").wait(30) == 0
    assert calls(checkout)[-1] == "own: --save-on-signal video_tools.cores_per_node=64 a=b"


def test_one_node_starts_no_others(checkout: Path) -> None:
    assert start(checkout, "some_grpo", SLURM_NNODES="1", RAY_AUTH_MODE="disabled").wait(30) == 3
    assert [line for line in calls(checkout) if line.startswith(("srun", "token"))] == [
        f"{ON_NODES.format(n=1)} --nodelist=n1 ray start --block --num-cpus=64 --head --port=6379",
        "token 0",
    ]


def test_a_job_whose_time_runs_out_saves_and_is_queued_again(checkout: Path) -> None:
    job = start(checkout, "long_grpo")
    deadline = time.monotonic() + 30
    while not (checkout / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)  # `--signal=B:TERM` reaches the script alone
    assert job.wait(30) == 143
    assert calls(checkout)[-2:] == ["saved", "scontrol requeue 7"], "in this order"


@pytest.mark.parametrize(
    ("words", "variables", "reason"),
    [
        (["no_such_grpo"], {}, "there is no recipes/no_such_grpo.sh"),
        ([], {}, "name of a recipe"),
        (["some_grpo"], {"OUTPUT_DIR": "outputs"}, "OUTPUT_DIR must be an absolute path"),
        (["some_grpo"], {"SLURM_SUBMIT_DIR": ""}, "submit this with sbatch"),
    ],
)
def test_what_is_refused(checkout: Path, words: list[str], variables: dict[str, str], reason: str) -> None:
    job = start(checkout, *words, **variables)
    assert job.wait(30) != 0
    assert reason in (checkout / "stderr").read_text()
    assert not (checkout / "calls").exists()
