"""Rows for fine-tuning that are about images instead of a video: `extra_info.image_paths`, and one turn that answers.

LongVT's cold start has 58,022 of them (arXiv 2511.20785, table 1). Such a row without turns is for rollouts, which ask
as this does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from verl_video_tools.core.errors import RowError, UsageError
from verl_video_tools.core.types import Message, Method, PixelEnvelope
from verl_video_tools.rollout.observation import picture_prompt_messages
from verl_video_tools.video.pictures import read_picture


def is_picture_row(row: Mapping[str, Any]) -> bool:
    """Whether the row names images; one that names a video as well is reported by `picture_faults`."""
    extra_info = row.get("extra_info")
    return isinstance(extra_info, Mapping) and bool(extra_info.get("image_paths"))


def picture_messages(row: Mapping[str, Any], method: Method, envelope: PixelEnvelope) -> list[Message]:
    """The prompt of a row, with its images at a size that the processor leaves alone.

    Raises:
        RowError: an image cannot be read, or the row cannot be used for fine-tuning (`picture_faults`).
        UsageError: the method does not ask about images.
    """
    if faults := picture_faults(row, method):
        raise RowError("; ".join(faults))
    extra_info = row["extra_info"]
    images = [read_picture(path, number, envelope) for number, path in enumerate(extra_info["image_paths"])]
    return picture_prompt_messages(method, str(extra_info["question"]), images)


def picture_faults(row: Mapping[str, Any], method: Method | None = None) -> list[str]:
    """What is wrong with a row about images; the content of the files is not checked.

    Args:
        method: whose turn it is; None leaves the turn's grammar unchecked.
    """
    extra_info, turns = row["extra_info"], row.get("turns")
    faults = []
    if extra_info.get("video_path"):
        faults.append("extra_info names both images (image_paths) and a video (video_path); keep one")
    if not extra_info.get("question"):
        faults.append("extra_info.question is missing or empty")
    paths = extra_info["image_paths"]
    if _are_texts(paths):
        faults += [f"no such image file: {path}" for path in paths if not os.path.isfile(path)]
    else:
        faults.append(f"extra_info.image_paths must be a list of paths, got {paths!r:.200}")
    if turns and not _are_texts(turns):
        faults.append(f"turns must be a list of texts, got {turns!r:.200}")
    elif not turns:
        faults.append("a row about images needs a column turns for fine-tuning")
    elif len(turns) != 1:
        faults.append(f"a row about images has one turn, which answers, got {len(turns)}")
    elif method is not None and (fault := turns_fault(turns, method)):
        faults.append(fault)
    if method is not None:
        try:
            method.picture_prompt("", ())
        except UsageError as error:
            faults.append(str(error))
    return faults


def _are_texts(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(one, str) for one in values)


def weights_of_turns(row: Mapping[str, Any]) -> list[float]:
    """The weight of each turn's loss: the row's column `turn_weights`, or 1 for every turn.

    Raises:
        RowError: they are not a finite number from 0 for each turn, with one above 0.
    """
    turns, weights = row["turns"] or (), row.get("turn_weights")
    if weights is None:
        return [1.0] * len(turns)
    fits = isinstance(weights, Sequence) and len(weights) == len(turns)
    if not fits or not all(_is_weight(weight) for weight in weights) or not any(weights):
        raise RowError(
            f"turn_weights must hold a number from 0 for each of its {len(turns)} turns, one of them above 0, got "
            f"{weights!r:.200}"
        )
    return [float(weight) for weight in weights]


def _is_weight(value: Any) -> bool:
    return isinstance(value, int | float) and 0.0 <= value < math.inf


def turns_fault(turns: Sequence[str], method: Method, *, takes_malformed: bool = False) -> str | None:
    """Why turns cannot be a rollout to imitate, whatever it is shown; None if they may be.

    Args:
        takes_malformed: a turn need not follow the grammar to the letter.
    """
    parsed = [method.parse(text) for text in turns]
    for number, turn in enumerate(parsed):
        is_last = number == len(turns) - 1
        fits = turn.answer is not None if is_last else turn.answer is None and method.continues_after(turn)
        if not fits or not (turn.well_formed or takes_malformed):
            expected = "answer" if is_last else "ask for another one"
            grammar = "grammar" if takes_malformed else "strict grammar"
            return f"turn {number} must {expected} in the {grammar} of {method.name}, got {turns[number]!r:.120}"
    return None
