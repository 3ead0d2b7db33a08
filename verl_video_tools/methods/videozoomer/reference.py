"""VideoZoomer's published scoring, which reads the assistant's turns as text.

Only `compat="reference"` uses it. It pays for a request as soon as its tag is written, whether or not frames were
shown; the method's page shows the inputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer.grammar import VIDEO_ZOOM

_OPENING, _CLOSING = f"<{VIDEO_ZOOM}>", f"</{VIDEO_ZOOM}>"
_LETTER = re.compile(r"([A-Z])\.")
_BOXED = "\\boxed{"


@dataclass(frozen=True, slots=True)
class TurnFindings:
    """What the published scoring sees in a rollout.

    Attributes:
        answer: text to be graded: after the last `<answer>`, from the start where there is none, up to a closing tag.
        well_formed: every turn but the last asks for a zoom, and the last one answers.
        num_calls: turns that hold a request, failed ones too, up to the first malformed turn.
    """

    answer: str
    well_formed: bool
    num_calls: int


def read_turns(turns: Sequence[str], max_frames: int) -> TurnFindings:
    """Read the assistant's turns as the published scoring does.

    Args:
        max_frames: frames per call that a well-formed request may ask for.
    """
    text = " ".join(turns)
    graded = text.rpartition("<answer>")[2].partition("</answer>")[0].strip()
    if len(turns) <= 1:
        turn = text.strip()
        return TurnFindings(graded, _answers(turn), int(_asks(turn)))
    num_calls = 0
    for turn in turns[:-1]:
        num_calls += _asks(turn)
        if not _zooms(turn.strip(), max_frames):
            return TurnFindings(graded, False, num_calls)
    return TurnFindings(graded, _answers(turns[-1]), num_calls)


def grade_letter_reference(answer: str, truth: str) -> bool:
    """Whether the published rule finds the letter `truth` (case-sensitive) in an answer.

    The answer is the letter, has it in ``\\boxed{}``, or its last capital before a full stop is the letter. So ``B. x``
    is right for B, but ``(B)``, ``B)`` and ``b`` are not, and neither is ``B. Visit the U.S.``.
    """
    truth = truth.strip().removesuffix(".")
    letters = _LETTER.findall(answer)
    return answer == truth or _boxed(answer) == truth or (bool(letters) and letters[-1] == truth)


def _boxed(text: str) -> str | None:
    """Content of the last ``\\boxed{}``, inner braces balanced."""
    _, found, rest = text.rpartition(_BOXED)
    depth = 1
    for position, character in enumerate(rest if found else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:position].strip()
    return None


def _asks(turn: str) -> bool:
    """Whether a request's closing tag stands anywhere after its opening one."""
    return _CLOSING in turn.partition(_OPENING)[2]


def _answers(turn: str) -> bool:
    """``^<think>.*</think>.*<answer>.*</answer>$``, one answer, no request."""
    body = turn.removesuffix("\n")  # a dollar sign also matches before one last line break
    return (
        body.endswith("</answer>")
        and _in_order(body, "<think>", "</think>", "<answer>", "</answer>")
        and turn.count("<answer>") == turn.count("</answer>") == 1
        and _OPENING not in turn
    )


def _zooms(turn: str, max_frames: int) -> bool:
    """``^<think>.*</think>.*<video_zoom>.*</video_zoom>``, one request within the limit, no answer."""
    if not (
        _in_order(turn, "<think>", "</think>", _OPENING, _CLOSING)
        and turn.count(_OPENING) == turn.count(_CLOSING) == 1
        and "<answer>" not in turn
        and "</answer>" not in turn
    ):
        return False
    try:
        request = json.loads(vt.find_blocks(turn, VIDEO_ZOOM)[0].inner)
        start, end = request["segment"][:2]
        return int(float(request["fps"]) * (float(end) - float(start))) <= max_frames
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return False


def _in_order(turn: str, first: str, *tags: str) -> bool:
    """Whether the turn starts with the first tag, and the others follow one after the other."""
    position = len(first) if turn.startswith(first) else -1
    for tag in tags:
        position = turn.find(tag, position) if position >= 0 else -1
        position += len(tag) if position >= 0 else 0
    return position >= 0
