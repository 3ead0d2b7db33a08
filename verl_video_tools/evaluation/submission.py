"""The answers to a benchmark that others' code grades, as the file that this code takes."""

from __future__ import annotations

from collections.abc import Iterable

from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats import Prediction, Submission
from verl_video_tools.data.generation.record import Record
from verl_video_tools.evaluation.questions import Questions


def submission_of(questions: Questions, records: Iterable[Record]) -> Submission | None:
    """The file of a benchmark that is not graded here (`Benchmark.submission`); None for any other.

    A question that was asked several times is handed in as it was answered the first time.

    Args:
        records: a record for each time that a question was asked. That of an item that failed has no answer.
    """
    if questions.benchmark is None or questions.benchmark.is_graded:
        return None
    answers = {str(record["uid"]): record["trajectory"] for record in records if int(record["session_id"]) == 0}
    predictions = []
    for task in (task for task in questions.tasks if task.session_id == 0):
        trajectory = answers.get(task.uid)
        answer = None if trajectory is None or trajectory.flags else trajectory.answer
        predictions.append(Prediction(Sample.from_row(task.row), answer))
    return questions.benchmark.submission(predictions)
