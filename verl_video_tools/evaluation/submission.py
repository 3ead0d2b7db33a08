"""The file to hand in where a benchmark keeps its truths: from recorded rollouts, in the order of the questions."""

from __future__ import annotations

from collections.abc import Iterable

from verl_video_tools.core.types import Sample
from verl_video_tools.data.formats.submissions import Prediction, Submission, has_truth
from verl_video_tools.data.generation.record import Record
from verl_video_tools.evaluation.questions import Questions


def submission_of(questions: Questions, records: Iterable[Record]) -> Submission | None:
    """What to hand in for the questions without a truth; None where each has one, or the benchmark takes no file.

    A question that was asked several times is handed in as it was answered the first time.

    Args:
        records: a record for each time that a question was asked. That of an item that failed has no answer.
    """
    if questions.benchmark is None:  # rows of a user, which may hold anything
        return None
    hidden = [task for task in questions.tasks if task.session_id == 0 and not has_truth(task.row)]
    if not hidden:
        return None
    answers = {str(record["uid"]): record["trajectory"] for record in records if int(record["session_id"]) == 0}
    predictions = []
    for task in hidden:
        trajectory = answers.get(task.uid)
        answer = None if trajectory is None or trajectory.flags else trajectory.answer
        predictions.append(Prediction(Sample.from_row(task.row), answer))
    return questions.benchmark.submission(predictions)
