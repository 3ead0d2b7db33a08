"""The fault plan as data: which fault is planted in which moment of a step, and what has to follow.

A cell is "<fault>:<moment>". Where a fault cannot occur in a moment, `IMPOSSIBLE` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.faults.moments import MOMENTS

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
        outcome: `ENDS` within five minutes, and the same command resumes; or `GOES_ON` to the last step.
        target: regular expression of the title or command line of the process that gets `signal`; None for a fault
            that is no signal (`tests.faults.plant`).
        environment: further variables of the recipe.
        resumed_says: the same for the output of the run that resumes.
        moments: in which it can occur.
        elsewhere: why not in the others.
        max_further_steps: that the run may do before it notices.
    """

    what: str
    says: str
    outcome: str = ENDS
    target: str | None = None
    signal: str = "SIGKILL"
    environment: tuple[tuple[str, str], ...] = ()
    resumed_says: str = ""
    moments: tuple[str, ...] = MOMENTS
    elsewhere: str = ""
    max_further_steps: int = 2


def _killed(what: str, target: str, says: str, **options: Any) -> Fault:
    return Fault(f"{what} is killed (SIGKILL)", says, target=target, **options)


def _lost(kind: str, target: str) -> Fault:
    return _killed(f"the {kind}", target, rf"RUN ENDED: lost {kind} \d+")


_SUPERVISOR = r"^\S+ -m verl_video_tools\.verl_plugin\.supervise "
_ASKED = r"ended by {}\. Start the same command again to resume"
_ENDED = r"{}.*` was ended by SIGKILL"

FAULTS: dict[str, Fault] = {
    "shell": _killed("the recipe's shell", r"^bash \S*recipes/framethinker_grpo\.sh", _ASKED.format("SIGTERM")),
    "first_supervisor": _killed("the first supervisor", _SUPERVISOR + r"(?!--folder)", _ASKED.format("SIGTERM")),
    "second_supervisor": _killed("the second supervisor", _SUPERVISOR + "--folder", _ENDED.format("supervise")),
    "driver": _killed("the driver", r"^\S+ -m verl\.trainer\.main_ppo ", _ENDED.format("main_ppo")),
    "task_runner": _killed("the task runner", r"^ray::TaskRunner", r"ActorDiedError[\s\S]*TaskRunner"),
    # Ray looks for its head for a minute, in which workers that know each other go on.
    "gcs_server": _killed(
        "Ray's head (gcs_server)", r"^\S*gcs_server ", r"Failed to connect to GCS", max_further_steps=30
    ),
    "raylet": _killed("Ray's node manager (raylet)", r"^\S*raylet ", r"Raylet is terminated|node has crashed"),
    "agent_loop_worker": _lost("agent loop worker", r"^ray::VideoAgentLoopWorker"),
    "reward_worker": _lost("reward worker", r"^ray::RewardLoopWorker"),
    "group_router": _lost("router", r"^ray::GroupRouter"),
    "inference_server": _lost("inference server", r"^ray::CpuVllmServer"),
    "engine_core": _killed("vLLM's engine core", r"^VLLM::EngineCore", r"RUN ENDED: .*engine process is dead"),
    "engine_worker": _killed("vLLM's worker", r"^VLLM::Worker", r"RUN ENDED: .*engine process is dead"),
    "training_worker": _lost("training worker", r"^ray::WorkerDict"),
    "queue_controller": _lost("TransferQueue controller", r"^ray::TransferQueueController"),
    "storage_unit": _lost("storage unit", r"^ray::SimpleStorageUnit"),
    "sigterm": Fault("SIGTERM to the recipe", _ASKED.format("SIGTERM"), target="^bash ", signal="SIGTERM"),
    "sigint": Fault("SIGINT to the recipe", _ASKED.format("SIGINT"), target="^bash ", signal="SIGINT"),
    "sigterm_and_save": Fault(
        "SIGTERM to the recipe with `SAVE_ON_SIGNAL=1`",
        r"stopped after step \d+, whose checkpoint is saved\. Start the same command again to resume",
        target="^bash ",
        signal="SIGTERM",
        environment=(("SAVE_ON_SIGNAL", "1"),),
    ),
    "video_gone": Fault(
        "a video of the step is removed",
        r"stop/video_error:\S*0\.[1-9]",
        outcome=GOES_ON,
        moments=("generation",),
        elsewhere="no video is read then; validation reads as generation does",
    ),
    "disk_full": Fault(
        "the disk is full (a file system of 1 MiB)",
        r"No space left on device|file write failed|unexpected pos",
        moments=("checkpoint",),
        elsewhere="nothing but logs and records is written then",
    ),
    "records_fail": Fault(
        "records cannot be written",
        r"failed: writing records to \S+; training goes on",
        outcome=GOES_ON,
        moments=("update",),
        elsewhere="they are written once the policy is updated; those of validation by the same function",
    ),
    "tracker_cut": Fault(
        "the run is killed while it names its checkpoint, and leaves an empty file",
        _ASKED.format("SIGTERM"),
        resumed_says=r"names no checkpoint that is there \(''\); resuming from \S+/global_step_\d+",
        moments=("checkpoint",),
        elsewhere="the file is written then",
    ),
}

IMPOSSIBLE: dict[str, str] = {
    "memory": "Linux ends a process for memory with SIGKILL: the rows above. Which of them it takes is its choice",
    "clock": "the clock belongs to the machine; no limit of this package reads it (`tests/test_clocks.py`)",
    "judge": "planted in `make test-recipes` (`tests/integration/test_recipe_runs.py`, `..._judge_that_dies_...`)",
}
"""Faults without a cell of their own, each with the reason."""

CHAIN = (
    "video_gone:generation",
    "records_fail:update",
    "storage_unit:checkpoint",
    "engine_core:weight_sync",
    "driver:validation",
)
"""Cells that `make test` plants (`tests/integration/test_five_faults.py`), one in each moment."""


@dataclass(frozen=True)
class Cell:
    fault: str
    moment: str

    def __str__(self) -> str:
        return f"{self.fault}:{self.moment}"


CELLS = [Cell(name, moment) for name, fault in FAULTS.items() for moment in MOMENTS if moment in fault.moments]
