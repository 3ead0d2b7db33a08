"""Controls: how much of an accuracy is knowledge without the video, or the place of the right option."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Method, Sample
from verl_video_tools.data.generation.task import RolloutTask
from verl_video_tools.evaluation.control_names import Control
from verl_video_tools.evaluation.questions import AS_PUBLISHED, Questions

_OTHER_OPTIONS = re.compile(r"\b[A-H](?:, ?[A-H])* ?(?:,|&|/|and|or) ?[A-H]\b|\b(?i:only|options?|not) \(?[A-H]\b")
"""``Both A and B``, ``Only C``, ``Options A, B and D``."""


def controlled(
    method: Method, questions: Questions, controls: Sequence[Control], seed: int | None
) -> tuple[Method, Questions]:
    """Method and questions of a control.

    Args:
        seed: decides the orders of options; None: 0.

    Raises:
        UsageError: the method cannot be asked without frames, or no question has options to shuffle.
    """
    if Control.NO_VISUAL in controls:
        method = method.without_visuals()
    if Control.SHUFFLED_OPTIONS in controls:
        questions = with_shuffled_options(questions, seed or 0)
    return method, questions


def label_of(method: Method, controls: Sequence[Control]) -> str:
    """What tables call a method under controls."""
    return f"{method.label}, shuffled options" if Control.SHUFFLED_OPTIONS in controls else method.label


def with_shuffled_options(questions: Questions, seed: int) -> Questions:
    """The same questions, each with its options in another order; one whose text does not list them, or whose
    truth is not published, is a fault.

    Raises:
        UsageError: there is none whose options can be shuffled.
    """
    tasks: list[RolloutTask] = []
    faults = dict(questions.faults)
    for task in questions.tasks:
        try:
            tasks.append(replace(task, row=_shuffled(task.row, random.Random(f"{seed}/{task.uid}"))))
        except RowError as error:
            faults[int(task.uid)] = error
    if not any(AS_PUBLISHED in task.row["extra_info"] for task in tasks):
        own = [error for number, error in faults.items() if number not in questions.faults]
        raise UsageError(
            f"--control shuffled-options: of {questions.num_questions} questions none has options that can be shuffled"
            f"{f'; the first: {own[0]}' if own else ''}. Leave the control out, or choose other questions"
        )
    return replace(questions, tasks=tasks, faults=faults)


def _shuffled(row: Mapping[str, Any], random: random.Random) -> dict[str, Any]:
    """A row with its options in another order; as it is where it has none.

    Raises:
        RowError: no row, its question does not list the options as lines `A. text`, an option names others by their
            letters, or it has no truth.
    """
    sample = Sample.from_row(row)
    options, truth = sample.options, sample.ground_truth
    if len(options) < 2 or sample.question_type != "mc":
        return dict(row)
    if not truth:
        raise RowError("options cannot be shuffled: the row has no truth, which would have to follow them")
    listed = _lines(options)
    if sample.question.count(listed) != 1:
        raise RowError(
            f"options cannot be shuffled: the question does not list them once as lines such as {listed!r:.80}"
        )
    if referring := [option for option in options if _OTHER_OPTIONS.search(option)]:
        raise RowError(f"options cannot be shuffled: {referring[0]!r:.80} names others by their letters")
    order = list(range(len(options)))
    while order == sorted(order):
        random.shuffle(order)
    shuffled = [options[place] for place in order]
    question = sample.question.replace(listed, _lines(shuffled))
    letter = string.ascii_uppercase[order.index(string.ascii_uppercase.index(truth))]
    return {
        **row,
        "prompt": [{"role": "user", "content": question}],
        "reward_model": {**row["reward_model"], "ground_truth": letter},
        "extra_info": {**row["extra_info"], "question": question, "options": shuffled, AS_PUBLISHED: sample.question},
    }


def _lines(options: Sequence[str]) -> str:
    return "\n".join(f"{letter}. {text}" for letter, text in zip(string.ascii_uppercase, options, strict=False))
