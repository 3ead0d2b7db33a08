"""The fault plan as data: which fault happens in which moment of a step, and what has to follow.

A cell is "<fault>:<moment>". Each fault happens in the moment, or the few moments, in which the run depends on it most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ENDS, GOES_ON = "ends", "goes on"
PLANTED_STEP, NUM_STEPS = 2, 3
"""Of a fault with which the run goes on: one step is whole before it, and one after it shows that it has."""
NUM_ROWS = {"train": 40, "test": 2}
ROWS_PER_STEP = 2
REFERENCE_STEPS = 48
"""Of the run without faults; the others go through several of these steps, a fault in each second or third."""


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes:
        what: that happens, for the page.
        says: regular expression that the run's output has to match.
        moments: in which it happens, each in a run of its own.
        outcome: `ENDS` within five minutes, and the same command resumes; or `GOES_ON` to the last step.
        target: regular expression of the title or command line of the process that gets `signal`; None for a fault
            that is no signal (`tests.faults.plant`).
        options: further options of the recipe.
        resumed_says: the same as `says` for the output of the run that resumes.
        max_further_steps: that the run may do before it notices.
    """

    what: str
    says: str
    moments: tuple[str, ...]
    outcome: str = ENDS
    target: str | None = None
    signal: str = "SIGKILL"
    options: tuple[str, ...] = ()
    resumed_says: str = ""
    max_further_steps: int = 2


def _killed(what: str, target: str, says: str, *moments: str, **options: Any) -> Fault:
    return Fault(f"{what} is killed (SIGKILL)", says, moments, target=target, **options)


def _lost(kind: str, target: str, *moments: str) -> Fault:
    return _killed(f"the {kind}", target, rf"RUN ENDED: lost {kind} \d+", *moments)


_LAUNCHER = r"^\S+ -m verl_video_tools\.cli train "
"""What a recipe becomes."""
_ASKED = r"ended by {}\. Start the same command again to resume"
_ENDED = r"{}.*` was ended by SIGKILL"
_ENGINE_DEAD = r"RUN ENDED: .*engine process is dead"

FAULTS: dict[str, Fault] = {
    # The driver waits for the run alike in every moment: any will do.
    "driver": _killed("the driver", r"^\S+ -m verl\.trainer\.main_ppo ", _ENDED.format("main_ppo"), "validation"),
    # It writes the data loader's state behind the actor's files, and names the checkpoint last.
    "task_runner": _killed("the task runner", r"^ray::TaskRunner", r"ActorDiedError[\s\S]*TaskRunner", "checkpoint"),
    # Ray looks for its head for a minute, in which workers that know each other go on.
    "gcs_server": _killed(
        "Ray's head (gcs_server)",
        r"^\S*gcs_server ",
        r"Failed to connect to GCS",
        "generation",
        max_further_steps=30,
    ),
    # All workers of the node end with it.
    "raylet": _killed(
        "Ray's node manager (raylet)", r"^\S*raylet ", r"Raylet is terminated|node has crashed", "reward"
    ),
    # Training and validation put their rollouts into separate partitions of TransferQueue.
    "agent_loop_worker": _lost("agent loop worker", r"^ray::VideoAgentLoopWorker", "generation", "validation"),
    "reward_worker": _lost("reward worker", r"^ray::RewardLoopWorker", "reward"),
    "group_router": _lost("router", r"^ray::GroupRouter", "generation"),
    # Each of the engine's three processes dies amid requests, and while it gets the new weights.
    "inference_server": _lost("inference server", r"^ray::CpuVllmServer", "generation", "weight_sync"),
    "engine_core": _killed("vLLM's engine core", r"^VLLM::EngineCore", _ENGINE_DEAD, "generation", "weight_sync"),
    "engine_worker": _killed("vLLM's worker", r"^VLLM::Worker", _ENGINE_DEAD, "weight_sync", "validation"),
    # It computes the update, writes the checkpoint, and sends the weights.
    "training_worker": _lost("training worker", r"^ray::WorkerDict", "update", "checkpoint", "weight_sync"),
    # A rollout is put into the queue together with its reward.
    "queue_controller": _lost("TransferQueue controller", r"^ray::TransferQueueController", "reward"),
    # The update reads the tensors of the step. A checkpoint reads none, and the run notices only in its next step.
    "storage_unit": _lost("storage unit", r"^ray::SimpleStorageUnit", "update", "checkpoint"),
    # The run must not resume from the checkpoint that is half written.
    "sigterm": Fault(
        "SIGTERM to the recipe", _ASKED.format("SIGTERM"), ("checkpoint",), target=_LAUNCHER, signal="SIGTERM"
    ),
    "sigint": Fault("SIGINT to the recipe", _ASKED.format("SIGINT"), ("update",), target=_LAUNCHER, signal="SIGINT"),
    # The run has the whole step to do before it can save it.
    "sigterm_and_save": Fault(
        "SIGTERM to the recipe with `--save-on-signal`",
        r"stopped after step \d+, whose checkpoint is saved\. Start the same command again to resume",
        ("generation",),
        target=_LAUNCHER,
        signal="SIGTERM",
        options=("--save-on-signal",),
    ),
    # Validation reads videos by the same code; no other moment reads any.
    "video_gone": Fault(
        "a video of the step is removed", r"stop/video_error:\S*0\.[1-9]", ("generation",), outcome=GOES_ON
    ),
    # In no other moment is anything but logs and records written.
    "disk_full": Fault(
        "the disk is full (a file system of 1 MiB)",
        r"No space left on device|file write failed|unexpected pos",
        ("checkpoint",),
    ),
    # The trainer writes them once the policy is updated.
    "records_fail": Fault(
        "records cannot be written",
        r"failed: writing records to \S+; training goes on",
        ("update",),
        outcome=GOES_ON,
    ),
    "tracker_cut": Fault(
        "the run is killed while it names its checkpoint, and leaves an empty file",
        _ASKED.format("SIGTERM"),
        ("checkpoint",),
        resumed_says=r"names no checkpoint that is there \(''\); resuming from \S+/global_step_\d+",
    ),
}


@dataclass(frozen=True)
class Cell:
    fault: str
    moment: str

    def __str__(self) -> str:
        return f"{self.fault}:{self.moment}"


CELLS = [Cell(name, moment) for name, fault in FAULTS.items() for moment in fault.moments]
