"""One run of a recipe from outside: started, watched for a moment, struck there, and looked at once it is over."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.moments import VARIABLE, marks
from tests.integration.conftest import REPO
from tests.waiting import is_gone
from verl_video_tools.launch.supervise import segments_in_use

START_LIMIT_SECONDS = 600.0
END_LIMIT_SECONDS = 300.0
"""From the fault to the end of every process."""
RECIPE = REPO / "recipes" / "framethinker_grpo.sh"
OPTIONS = (
    "data.shuffle=False",  # a row that is lost or seen twice shows
    "trainer.save_freq=1",
    "trainer.test_freq=1",
    "trainer.max_actor_ckpt_to_keep=null",
    "trainer.v1.trainer_mode=video_tools_marked",
    "video_tools.trainer.record_tokens=True",
    "video_tools.trainer.watchdog_grace_seconds=15",
    "data.train_batch_size=2",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=mp",  # a worker to kill, as on GPUs
    "reward.reward_manager.name=MarkedRewardManager",
    "reward.reward_manager.module.path=pkg://tests.faults.reward",
    f"actor_rollout_ref.rollout.agent.agent_loop_config_path={Path(__file__).with_name('loops.yaml')}",
)


@dataclass
class FaultRun:
    """A run while it lives, and what is known of it afterwards.

    Attributes:
        folder: of checkpoints and records; kept from one run to the next, which resumes.
        seconds: from its start to the end of its last process.
        ended_seconds: from the fault to there.
        left: processes, shared memory and temporary files that it has left behind.
    """

    folder: Path
    process: subprocess.Popen[bytes]
    log_path: Path
    marks_path: Path
    temporary: Path
    started: float = field(default_factory=time.monotonic)
    processes: set[psutil.Process] = field(init=False)
    segments: set[int] = field(default_factory=set)
    returncode: int | None = None
    seconds: float = 0.0
    ended_seconds: float = 0.0
    left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.processes = {psutil.Process(self.process.pid)}

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def find(self, target: str) -> psutil.Process:
        """The process whose title or command line matches; the oldest of several, since shells nest."""
        found = []
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                if re.search(target, " ".join(process.cmdline())):
                    found.append(process)
        assert found, f"no process of the run matches {target!r}"
        return min(found, key=lambda process: process.create_time())

    def look(self) -> None:
        """Remember the processes and the shared memory of the run, which must be gone later."""
        with suppress(psutil.NoSuchProcess):
            self.processes.update(psutil.Process(self.process.pid).children(recursive=True))
        self.segments |= segments_in_use(self.processes)

    def wait_for(self, mark: str) -> bool:
        """Whether the run comes to this mark; False if it ends before."""
        end = time.monotonic() + START_LIMIT_SECONDS
        while mark not in marks(self.marks_path):
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, f"{mark}: not within {START_LIMIT_SECONDS:.0f} s, see {self.log_path}"
            time.sleep(0.005)
        return True

    def finish(self, struck: float | None = None, limit_seconds: float = START_LIMIT_SECONDS) -> None:
        """Wait for the end of every process; what outlives the limit is noted as left behind, and killed."""
        struck = time.monotonic() if struck is None else struck
        with suppress(subprocess.TimeoutExpired):
            self.returncode = self.process.wait(max(0.0, struck + limit_seconds - time.monotonic()))
        # A shell that was killed is gone before those that clean up after it.
        while (living := self._living()) and time.monotonic() < struck + limit_seconds:
            time.sleep(0.1)
        self.ended_seconds, self.seconds = time.monotonic() - struck, time.monotonic() - self.started
        self.left = [f"process {_title(process)}" for process in living]
        for process in living:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        in_use = [entry for entry in os.scandir("/dev/shm") if entry.inode() in self.segments]
        self.left += [f"shared memory {entry.name}" for entry in in_use]
        self.left += [f"temporary file {path.name}" for path in self.temporary.iterdir()]
        shutil.rmtree(self.temporary)

    def kill(self) -> None:
        """Leave nothing of a run whose test has failed; nothing to do where it is over."""
        if self.process.poll() is None:
            self.finish(limit_seconds=0.0)

    def _living(self) -> list[psutil.Process]:
        return [process for process in self.processes if process.is_running() and not is_gone(process.pid)]


def _title(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())[-80:] or process.name()
    return str(process.pid)


def start(folder: Path, num_steps: int, *options: str, demo_dir: str, **environment: str) -> FaultRun:
    """Start the recipe for so many steps in all; it resumes from what lies in `folder`."""
    number = len(list(folder.parent.glob(f"{folder.name}_run*.log")))
    name = f"{folder.name}_run{number}"
    temporary = Path(tempfile.mkdtemp(prefix="vvt-fault-"))
    log_path, marks_path = folder.parent / f"{name}.log", folder.parent / f"{name}.marks"
    variables = {
        **os.environ,
        "DEVICE": "cpu",
        "VERBOSE": "1",  # the plan waits for messages of verl and Ray
        "PYTHON": sys.executable,
        "OUTPUT_DIR": str(folder.parent),
        "PYTHONPATH": str(REPO),  # the trainer of the plan lies in tests/
        "VERL_USE_EXTERNAL_MODULES": "tests.faults.registration",
        "RAY_TMPDIR": tempfile.gettempdir(),  # Ray's logs are meant to stay
        "TMPDIR": str(temporary),
        VARIABLE: str(marks_path),
        **environment,
    }
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                *("bash", str(RECIPE), *OPTIONS, *options),
                *(f"trainer.default_local_dir={folder}", f"trainer.total_training_steps={num_steps}"),
                *(f"video_tools.demo_dir={demo_dir}", "video_tools.demo.is_made=true"),
            ],
            cwd=folder.parent,
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    return FaultRun(folder, process, log_path, marks_path, temporary)


def clear(folder: Path) -> None:
    """Remove what earlier runs have written there, their logs beside it included."""
    for path in folder.parent.glob(f"{folder.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


Plant = Callable[[FaultRun, int, str], None]
"""Lets a fault happen in a moment of a step; called when the step before has been validated."""


def let_happen(run: FaultRun, step: int, moment: str, plant: Plant) -> None:
    """Let the fault happen in this moment."""
    assert run.wait_for(f"{step - 1} validation"), f"the run ended before its step {step}:\n{run.log[-4000:]}"
    run.look()
    plant(run, step, moment)


def strike(run: FaultRun, step: int, moment: str, plant: Plant) -> None:
    """Let the fault happen in this moment, and wait for the end of the run."""
    let_happen(run, step, moment, plant)
    struck = time.monotonic()
    run.look()
    run.finish(struck, END_LIMIT_SECONDS)


def send(target: str, name: str) -> Plant:
    """The fault that the process matching `target` gets this signal."""

    def plant(run: FaultRun, step: int, moment: str) -> None:
        process, mark = run.find(target), f"{step} {moment}"
        assert run.wait_for(mark), f"the run ended before {mark}:\n{run.log[-4000:]}"
        process.send_signal(signal.Signals[name])
        seen = marks(run.marks_path)
        assert seen[-1] == mark, f"the fault came too late, after {seen[-3:]}"

    return plant
