"""Which rollouts are to be made, and of which questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.generation.summary import Key
from verl_video_tools.data.generation.templates import DialogueTemplate, allotted
from verl_video_tools.data.parquet import read_table


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
