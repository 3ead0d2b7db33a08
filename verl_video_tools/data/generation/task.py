"""Which rollouts are to be made, and of which questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.prompts import read_prompt
from verl_video_tools.core.types import Trajectory
from verl_video_tools.data.generation.summary import Key
from verl_video_tools.data.generation.templates import DialogueTemplate, allotted
from verl_video_tools.data.parquet import read_table
from verl_video_tools.records.records import read_records


@dataclass(frozen=True)
class RolloutTask:
    """One rollout to be made.

    Attributes:
        uid: shared by the rollouts of one question.
        session_id: number of the rollout among those.
        row: `data_source`, `reward_model` and `extra_info` of the question.
        given_turns: assistant turns that the rollout starts with.
        given_initial_frames: indices of the frames that these turns were written about; None: whatever the method
            shows.
        settings: fields of the method that are this rollout's own, kept in its record.
        template: form that the dialogue is to take; recorded with how the dialogue departs from it.
        is_graded: False: the row has no truth; the rollout earns nothing, and has no label.
    """

    uid: str
    session_id: int
    row: Mapping[str, Any]
    given_turns: tuple[str, ...] = ()
    given_initial_frames: tuple[int, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    template: DialogueTemplate | None = None
    is_graded: bool = True

    @property
    def key(self) -> Key:
        return self.uid, self.session_id

    def entries(self, column: str) -> Mapping[str, Any]:
        """A column of named entries; none where it holds something else, for which the rollout is flagged."""
        given = self.row.get(column)
        return given if isinstance(given, Mapping) else {}


def tasks_of_rows(
    rows_parquet: str | Path, num_samples: int, templates: Sequence[DialogueTemplate] = (), seed: int | None = None
) -> list[RolloutTask]:
    """So many rollouts of each row; the uid is the row's place in the file, from 0.

    Args:
        templates: forms of which each dialogue takes one, by their shares; `seed` decides which.

    Raises:
        UsageError: the file cannot be read, or has no rows; or no template suits one of them.
    """
    rows = read_table(rows_parquet).to_pylist()
    if not rows:
        raise UsageError(f"{rows_parquet} has no rows")
    tasks = [RolloutTask(str(number), sample, row) for number, row in enumerate(rows) for sample in range(num_samples)]
    if not templates:
        return tasks
    questions = [str(task.entries("extra_info").get("question", "")) for task in tasks]
    forms = allotted(templates, questions, seed or 0)
    return [replace(task, template=form) for task, form in zip(tasks, forms, strict=True)]


def tasks_of_failures(records: str | Path, num_samples: int) -> tuple[str, list[RolloutTask]]:
    """So many corrections of each recorded rollout that executed a tool call and still answered wrong, or not at all
    (VideoZoomer, paper 3.2).

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


def reflection_prompt() -> str:
    """The expert's instruction beside the method's own prompt."""
    return read_prompt(__package__, "reflection_prompt.txt", None)
