"""A recipe as a job on a Ray cluster of two machines (namespaces of this one), of which one is lost and comes back.

The first machine has the only (logical) GPU, thus the trainer and the engine; each has one of the two agent loop
workers. In the last test the second machine has a GPU as well, and a share in the training. `make test-cluster`; the
machines' Ray logs are in a folder that a failure names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.conftest import MAX_PROBS_DIFF, REPO, write_rows
from tests.integration.network_nodes import Node, connected_nodes, reason_against_namespaces, wait_until
from verl_video_tools.records.records import read_records
from verl_video_tools.records.report import LOG_NAMES, read_log

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

ADDRESSES = ("10.77.0.1", "10.77.0.2")
RAY = Path(sys.executable).with_name("ray")
START_SECONDS, JOB_SECONDS = 120, 900
PROMISED_SECONDS = 60
"""In which a lost node ends the run (docs/cluster.md)."""
RUN_STARTS = """
import sys
import ray, transfer_queue
from omegaconf import OmegaConf
from verl_video_tools.verl_plugin.queue import storage_units
backend = {"storage_backend": "SimpleStorage", "SimpleStorage": {"num_data_storage_units": 1, "total_storage_size": 10}}
config = OmegaConf.create({"backend": backend})
ray.init(address="10.77.0.1:6379", log_to_driver=False)
transfer_queue.init(config)
print("storage units:", len(storage_units(config.backend)), flush=True)
sys.stdin.read()
"""
"""What verl's task runner and our trainer do first of all; then it stays until its standard input ends."""


@dataclass
class Cluster:
    """Ray on two machines. `environment` is that of `ray start`, and says nothing of recipes."""

    nodes: list[Node]
    folder: Path
    environment: dict[str, str]

    def start_node(self, number: int, num_gpus: int) -> None:
        node = self.nodes[number]
        role = ["--head", "--port=6379"] if number == 0 else [f"--address={ADDRESSES[0]}:6379"]
        returncode, output = node.run(
            RAY,
            "start",
            *role,
            f"--node-ip-address={node.address}",
            "--num-cpus=16",
            f"--num-gpus={num_gpus}",
            "--object-store-memory=200000000",
            f"--temp-dir={self.folder / str(number)}",
            "--disable-usage-stats",
            environment=self.environment,
            timeout_seconds=START_SECONDS,
        )
        assert returncode == 0, output

    def job(self, log_path: Path, *words: str | Path) -> subprocess.Popen[bytes]:
        """A command that submits a job and follows it, run on the first machine."""
        with log_path.open("w") as log:
            return subprocess.Popen(
                self.nodes[0].command(*words, folder=REPO),
                env={**self.environment, "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:8265"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := reason_against_namespaces():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="vvt", dir="/tmp"))  # Ray's sockets need short paths
    environment = {
        "PATH": f"{RAY.parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(REPO),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": uuid.uuid4().hex,
        "RAY_scheduler_avoid_gpu_nodes": "0",  # else the trainer, which needs none, would go to the second machine
    }
    try:
        with connected_nodes(ADDRESSES) as nodes:
            cluster = Cluster(nodes, folder, environment)
            cluster.start_node(0, num_gpus=1)
            cluster.start_node(1, num_gpus=0)
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def finish(job: subprocess.Popen[bytes], timeout_seconds: float) -> int | None:
    """The job's exit code, None where it did not end in time."""
    try:
        return job.wait(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        job.kill()
        job.wait()


def submit(
    cluster: Cluster, output_dir: Path, sft_model: Path, log_name: str, *options: str, **more_variables: str
) -> subprocess.Popen[bytes]:
    rows = write_rows(output_dir, "cluster.parquet", "framethinker", lambda number, row: None)
    variables = {
        "PYTHON": sys.executable,
        "DEVICE": "cpu",
        "VERBOSE": "1",
        "OUTPUT_DIR": str(output_dir),
        "MODEL_PATH": str(sft_model),
        "TRAIN_FILES": rows,
        "VAL_FILES": rows,  # the demonstration's own name methods that search, and this recipe has no retriever
        **more_variables,
    }
    return cluster.job(
        output_dir / log_name,
        "bash",
        REPO / "examples" / "ray_job" / "submit.sh",
        *(f"{name}={value}" for name, value in variables.items()),
        "framethinker_grpo",
        f"trainer.default_local_dir={output_dir / 'cluster'}",
        *(f"video_tools.demo_dir={output_dir / 'demo_mixed'}", "video_tools.demo.is_made=true"),
        *("actor_rollout_ref.rollout.n=2", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"),
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "trainer.save_freq=1",
        *options,
    )


def cached_frames(node: Node, environment: dict[str, str]) -> int:
    folder = f"/dev/shm/vvt-frames-{os.getuid()}-cluster-test"
    _, output = node.run("find", folder, "-type", "f", "-size", "+1k", environment=environment, timeout_seconds=30)
    return len([line for line in output.splitlines() if line.startswith(folder)])


def test_every_node_can_take_part(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "check.log"
    script = [
        "--runtime-env",
        "examples/ray_job/runtime_env.yaml",
        "--",
        sys.executable,
        "examples/ray_job/check_nodes.py",
    ]
    returncode = finish(cluster.job(log, RAY, "job", "submit", *script), timeout_seconds=600)
    text = log.read_text()
    assert returncode == 0, text[-6000:]
    for address in ADDRESSES:
        assert re.search(rf"^{address}: .*'plugin': 'loaded'.*'shared memory': '2.0 GiB'", text, re.MULTILINE), text


def test_a_second_run_on_the_cluster_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    log_path, node = tmp_path / "first.log", cluster.nodes[0]
    words = (sys.executable, "-c", RUN_STARTS)
    with log_path.open("w") as log:
        first = subprocess.Popen(
            node.command(*words), env=cluster.environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
        )
    assert first.stdin is not None
    try:
        wait_until(
            lambda: "storage units: 1" in log_path.read_text() or first.poll() is not None, 300, "the first run's start"
        )
        assert first.poll() is None, log_path.read_text()
        returncode, output = node.run(*words, environment=cluster.environment, timeout_seconds=300)
    finally:
        first.stdin.close()
        first.wait(timeout=60)
    assert returncode != 0
    assert "another run uses this Ray cluster" in output


@dataclass
class LostRun:
    """A run whose second machine lost all its processes during a step."""

    returncode: int | None
    log: str
    frames: list[int]
    seconds_to_the_end: float
    last_checkpoint: int


@pytest.fixture(scope="module")
def lost_run(cluster: Cluster, output_dir: Path, sft_model: Path) -> LostRun:
    folder = output_dir / "cluster"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier session
    latest = folder / "latest_checkpointed_iteration.txt"
    job = submit(cluster, output_dir, sft_model, "cluster_lost.log", "trainer.total_training_steps=1000")
    try:
        wait_until(lambda: latest.exists() or job.poll() is not None, JOB_SECONDS, "the first checkpoint")
        frames = [cached_frames(node, cluster.environment) for node in cluster.nodes]
        cluster.nodes[1].kill_processes()
        killed = time.monotonic()
        returncode = finish(job, timeout_seconds=300)
    finally:
        finish(job, timeout_seconds=0)
    log = (output_dir / "cluster_lost.log").read_text(errors="replace")
    assert latest.exists(), f"no checkpoint; Ray's logs are in {cluster.folder}; end of the job's:\n{log[-6000:]}"
    return LostRun(returncode, log, frames, time.monotonic() - killed, int(latest.read_text()))


def test_the_log_names_both_nodes_and_their_actors(lost_run: LostRun) -> None:
    for address in ADDRESSES:
        assert re.search(rf"node {address}: .*1 x agent loop worker", lost_run.log)
    assert re.search(rf"node {ADDRESSES[0]}: .*1 x training worker, 1 x inference server", lost_run.log)


def test_frames_are_cached_on_each_node(lost_run: LostRun) -> None:
    assert all(number > 0 for number in lost_run.frames), lost_run.frames


def test_a_lost_node_ends_the_run_in_time_with_its_address(lost_run: LostRun) -> None:
    assert lost_run.returncode == 1
    # Ray may have put the trainer there in spite of all: its watchdog is then lost as well, and the recipe tells.
    if not re.search(rf"TaskRunner\w* pid=\d+, ip={re.escape(ADDRESSES[1])}\)", lost_run.log):
        # All of the lost node's, or those of which Ray knew first.
        lost = rf"RUN ENDED: lost [^.;]*(agent loop worker|storage unit) \d on node {ADDRESSES[1]}"
        assert re.search(lost, lost_run.log)
    assert re.search(rf"^\[verl_video_tools\] node {ADDRESSES[1]} is dead", lost_run.log, re.MULTILINE)
    assert lost_run.seconds_to_the_end < PROMISED_SECONDS


def test_the_same_job_resumes_when_the_node_is_back(
    cluster: Cluster, lost_run: LostRun, output_dir: Path, sft_model: Path
) -> None:
    cluster.start_node(1, num_gpus=0)
    last = lost_run.last_checkpoint + 1
    job = submit(cluster, output_dir, sft_model, "cluster_resumed.log", f"trainer.total_training_steps={last}")
    returncode = finish(job, JOB_SECONDS)
    log = (output_dir / "cluster_resumed.log").read_text(errors="replace")
    assert returncode == 0, log[-6000:]
    assert re.search(rf"node {ADDRESSES[1]}: .*1 x agent loop worker", log)
    folder = output_dir / "cluster"
    assert int((folder / "latest_checkpointed_iteration.txt").read_text()) == last
    # A step is recorded after its checkpoint: a trainer that is lost between the two takes that record along.
    assert last in {line["step"] for line in read_records(folder / "trajectories")}


def test_training_spans_both_nodes(cluster: Cluster, output_dir: Path, sft_model: Path) -> None:
    """A training worker and an engine on each machine; the second step's rollouts come from synchronized weights."""
    cluster.nodes[1].kill_processes()
    cluster.start_node(1, num_gpus=1)
    folder = output_dir / "cluster_spanning"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier session
    job = submit(
        cluster,
        output_dir,
        sft_model,
        "cluster_spanning.log",
        "trainer.total_training_steps=2",
        f"trainer.default_local_dir={folder}",
        NNODES="2",
        NDEVICES_PER_NODE="1",
        GLOO_SOCKET_IFNAME="cable",  # Gloo asks for the address of the host's name, which both machines share here
    )
    returncode = finish(job, JOB_SECONDS)
    log = (output_dir / "cluster_spanning.log").read_text(errors="replace")
    assert returncode == 0, log[-6000:]
    for address in ADDRESSES:
        assert re.search(rf"node {address}: .*1 x training worker, 1 x inference server", log)
    for rank in range(2):
        assert (folder / "global_step_2" / "actor" / f"model_world_size_2_rank_{rank}.pt").exists()
    (metrics,) = folder.glob(LOG_NAMES)
    differences = [values["training/rollout_probs_diff_mean"] for _, values in sorted(read_log(metrics).items())]
    assert len(differences) == 2
    assert max(differences) <= MAX_PROBS_DIFF
