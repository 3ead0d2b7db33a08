"""Reflection on failed rollouts: a wrong beginning, and what an expert makes of it (VideoZoomer, paper 3.2)."""

from __future__ import annotations

from pathlib import Path

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompt_files import read_prompt
from verl_video_tools.core.types import Trajectory
from verl_video_tools.data.generation.task import RolloutTask
from verl_video_tools.records.records import read_records


def tasks_of_failures(records: str | Path, num_samples: int) -> tuple[str, list[RolloutTask]]:
    """So many corrections of each recorded rollout that executed a tool call and still answered wrong, or not at all.

    A correction starts with the failed rollout's turns but the last, so the expert does not read the wrong answer.
    Flagged rollouts are left out, and so are those that executed no call before their last turn. What a rollout had of
    its own (FrameMind's rung) and its initial frames are the correction's, too: its turns refer to those frames.

    Args:
        records: a file of records, or the folder of a training run.

    Returns:
        The method of the rollouts, and the tasks.

    Raises:
        UsageError: there is no such rollout, or rollouts are of several methods.
    """
    tasks: list[RolloutTask] = []
    methods: set[str] = set()
    for line in read_records(Path(records), must_exist=True):
        trajectory: Trajectory = line["trajectory"]
        beginning = trajectory.turns[:-1]
        looked = any(call.ok for turn in beginning for call in turn.calls)
        if trajectory.flags or line["reward"]["acc"] > 0 or not looked:
            continue
        methods.add(trajectory.method)
        row = {
            "data_source": line["data_source"],
            "reward_model": {"ground_truth": line["ground_truth"]},
            "extra_info": line["extra_info"],
        }
        uid = f"{line['step']}/{line['uid']}/{line['session_id']}"
        given_turns = tuple(turn.text for turn in beginning)
        given = given_turns, tuple(trajectory.initial_frame_indices()), trajectory.settings
        tasks += [RolloutTask(uid, sample, row, *given) for sample in range(num_samples)]
    if not tasks:
        raise UsageError(f"{records}: no wrong rollout with an executed call to reflect on")
    if len(methods) > 1:
        raise UsageError(f"{records} holds rollouts of {', '.join(sorted(methods))}; give those of one method")
    return methods.pop(), tasks


def reflection_prompt(prompt_file: str | Path | None = None) -> str:
    """The expert's instruction beside the method's own prompt; the packaged text unless a file is given.

    Raises:
        UsageError: the file cannot be read.
    """
    return read_prompt(__package__, "reflection_prompt.txt", prompt_file)
