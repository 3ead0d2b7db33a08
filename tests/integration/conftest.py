"""Real runs of the recipes, which all tests of a session share: SFT, then GRPO with real vLLM, all on the CPU.

| fixture | run | tests |
|---|---|---|
| `sft_model` | the cold start of all methods, killed and resumed | `test_cold_start` |
| `grpo_run` | three synchronous steps of all methods, with tokens and checkpoints | `test_grpo` |
| `async_run` | two steps of all methods in verl's mode `colocate_async`, in `make test-long` | `test_colocate_async` |
| `faulty_run` | three steps whose rows plant faults of video, judge, engine and our own code | `test_planted_faults` |
| `chain` | a run killed again and again and resumed, in `make test-long` | `test_killed_and_resumed` |
| `methods_run` | two steps of methods that only tests have, in `make test-long` | `test_context`, `test_group_scores` |

Every run goes into a folder of the session, under a timeout, with its output in `<name>.log`. What needs no run of a
recipe takes `transfer_queue`, which is one Ray for the session.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray
import transfer_queue as tq
from datasets import Dataset
from omegaconf import OmegaConf

from tests.integration.leftovers import VARIABLE, kill_processes_of

REPO = Path(__file__).parents[2]
RUN_TIMEOUT_SECONDS = 1200
MAX_PROBS_DIFF = 1e-4
"""Mean difference of probabilities, or of their logarithms, that engine and actor may have in float32."""


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """The session's own Ray; a recipe starts another for its run."""
    with pytest.MonkeyPatch.context() as patch:
        # Its workers inherit this. In a runtime_env, each actor would wait for a process of its own.
        patch.setenv("PYTHONPATH", str(REPO))
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def transfer_queue(ray_session: None) -> Iterator[None]:
    """TransferQueue's real controller and storage units; a test leaves nothing in them."""
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 2}}}))
    yield
    tq.close()


@dataclass(frozen=True)
class Run:
    """One finished run of a recipe."""

    returncode: int
    log: str
    folder: Path
    seconds: float


def run_recipe(
    name: str,
    recipe: str,
    output_dir: Path,
    *options: str,
    kill_when: Callable[[], bool] = lambda: False,
    **environment: str,
) -> Run:
    """Run `recipes/<recipe>.sh` to its end; kills its processes if it does not end in time.

    Args:
        name: names the run's folder and log below `output_dir`.
        options: further verl options.
        kill_when: asked again and again; all processes of the run are killed as soon as it is true.
        environment: further environment variables.
    """
    folder = output_dir / name
    log_path = output_dir / f"{name}.log"
    marker = f"{name}-{os.getpid()}-{time.time_ns()}"
    variables = {
        **os.environ,
        "DEVICE": "cpu",
        "VERBOSE": "1",  # tests read what verl and Ray print
        "PYTHON": sys.executable,
        "OUTPUT_DIR": str(output_dir),
        "PYTHONPATH": str(REPO),  # the instrumented replica lies in tests/
        "VVT_FRAME_CACHE_BYTES": str(512 << 20),  # all frames of the demo
        VARIABLE: marker,
        **environment,
    }
    started = time.monotonic()
    with log_path.open("w") as log:
        process = subprocess.Popen(
            ["bash", str(REPO / "recipes" / f"{recipe}.sh"), f"trainer.default_local_dir={folder}", *options],
            cwd=output_dir,
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while process.poll() is None and time.monotonic() < started + RUN_TIMEOUT_SECONDS and not kill_when():
                time.sleep(0.1)
        finally:
            seconds = time.monotonic() - started
            kill_processes_of(marker)
    return Run(process.wait(), log_path.read_text(errors="replace"), folder, seconds)


def assert_succeeded(run: Run) -> None:
    assert run.returncode == 0, (
        f"exit code {run.returncode} after {run.seconds:.0f} s; end of its log:\n{run.log[-6000:]}"
    )


@pytest.fixture(scope="session")
def output_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of all runs of this session; set VVT_TEST_OUTPUT_DIR to keep it and to reuse its SFT model."""
    kept = os.environ.get("VVT_TEST_OUTPUT_DIR")
    path = Path(kept) if kept else tmp_path_factory.mktemp("runs")
    path.mkdir(parents=True, exist_ok=True)
    return path


SFT_SAVE_FREQ = 40


@pytest.fixture(scope="session")
def sft_model(output_dir: Path) -> Path:
    """The tiny model, cold-started on all methods by the SFT recipe, which is killed once and started again."""
    folder = output_dir / "mixed_sft"
    if (folder / "huggingface" / "config.json").exists():
        return folder / "huggingface"
    tracker = folder / "latest_checkpointed_iteration.txt"
    options = (
        f"trainer.save_freq={SFT_SAVE_FREQ}",
        "engine._target_=verl_video_tools.verl_plugin.fsdp_engine.FrozenTowerConfig",
    )
    threads = str(os.cpu_count() or 1)  # nothing else runs meanwhile

    def has_saved() -> bool:
        return tracker.exists() and bool(tracker.read_text())

    killed = run_recipe("mixed_sft", "mixed_sft", output_dir, *options, kill_when=has_saved, OMP_NUM_THREADS=threads)
    assert has_saved() and killed.returncode != 0, f"it was to be killed after a checkpoint:\n{killed.log[-6000:]}"
    assert_succeeded(run_recipe("mixed_sft", "mixed_sft", output_dir, *options, OMP_NUM_THREADS=threads))
    return folder / "huggingface"


def write_rows(output_dir: Path, name: str, method: str | None, change: Callable[[int, dict[str, Any]], None]) -> str:
    """Path of a file `name` with the demo's rows of a method, or of all, each as `change(number, row)` leaves it."""
    rows = pq.read_table(output_dir / "demo_mixed" / "train.parquet").to_pylist()
    rows = [row for row in rows if method in (None, row["agent_name"])]
    for number, row in enumerate(rows):
        change(number, row)
    path = output_dir / name
    Dataset.from_list(rows).to_parquet(path)
    return str(path)


INSTRUMENTED = {"VERL_USE_EXTERNAL_MODULES": "tests.integration.instrumented"}
NUM_STEPS, GROUP_SIZE = 3, 8
GRPO_OPTIONS = (
    f"trainer.total_training_steps={NUM_STEPS}",
    "trainer.save_freq=1",
    "trainer.max_actor_ckpt_to_keep=null",
    "video_tools.trainer.record_tokens=True",
)


@pytest.fixture(scope="session")
def grpo_run(output_dir: Path, sft_model: Path) -> Run:
    """Three GRPO steps on a group of each method, at a large learning rate; tokens and checkpoints are kept."""
    server_log = output_dir / "grpo_server.jsonl"
    server_log.unlink(missing_ok=True)
    run = run_recipe(
        "grpo",
        "mixed_grpo",
        output_dir,
        *GRPO_OPTIONS,
        f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        MODEL_PATH=str(sft_model),
        VVT_TEST_SERVER_LOG=str(server_log),
        **INSTRUMENTED,
    )
    assert_succeeded(run)
    return run


@pytest.fixture(scope="session")
def policies(grpo_run: Run, sft_model: Path) -> list[Path]:
    """Hugging Face folders, in float32, of the policies that generated the rollouts of step 1, 2, 3, ..."""
    saved = [grpo_run.folder / f"global_step_{step}" / "actor" / "huggingface" for step in range(1, NUM_STEPS)]
    return [sft_model, *saved]


@pytest.fixture(scope="session")
def methods_run(output_dir: Path, sft_model: Path) -> Run:
    """Two GRPO steps of the methods that only tests have."""
    from tests.integration.method_runs import synchronous_run  # which imports this file

    return synchronous_run(output_dir, sft_model)
