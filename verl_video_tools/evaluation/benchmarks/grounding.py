"""Temporal grounding: answers that are a segment of the video, graded by overlap."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

from verl_video_tools.evaluation.benchmarks import GradedItem
from verl_video_tools.evaluation.benchmarks.fields import clock_seconds
from verl_video_tools.rewards.temporal import temporal_iou
from verl_video_tools.types import AnswerLabel

RECALL_OVERLAPS = (0.3, 0.5, 0.7)
RIGHT_OVERLAP = 0.5
"""Overlap from which an answer counts as right."""

_MARKUP = re.compile(r"[*_`$\\]")
_TIME = r"(\d+(?::\d+){0,2}(?:\.\d+)?|(?<![.\w])\.\d+)\s*(?:s\b|sec(?:ond)?s?\b)?"
_PAIR = rf"{_TIME}\s*(?:,|-|\u2013|\u2014|~|\bto\b|\band\b|\buntil\b)\s*{_TIME}"
_SEGMENT = re.compile(_PAIR, re.IGNORECASE)
_SEGMENT_IN_BRACKETS = re.compile(rf"\[\s*{_PAIR}\s*\]", re.IGNORECASE)


def read_segment(answer: str | None) -> tuple[float, float] | None:
    """The last segment that an answer names, in seconds; None if it names none.

    Two times belong together where only a comma, a dash, "to", "and" or "until" stands between them: ``[2.5, 7]``,
    ``2.5s - 7s``, ``from 0:02 to 0:07``. Those in square brackets come first: what else an answer says may be about
    other times. Markup counts for nothing. Ends in the wrong order are a segment that overlaps nothing.
    """
    text = _MARKUP.sub("", answer or "")
    found = _SEGMENT_IN_BRACKETS.findall(text) or _SEGMENT.findall(text)
    if not found:
        return None
    start, end = map(clock_seconds, found[-1])
    return None if start is None or end is None else (start, end)


def overlap(answer: str | None, truth: Sequence[float]) -> float:
    """Intersection over union of the answer's segment with the true one; 0 where it names none."""
    segment = read_segment(answer)
    return 0.0 if segment is None else temporal_iou(segment, truth)


class SegmentJudge:
    """A `Judge` by rule: right from an overlap of `RIGHT_OVERLAP` on."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """The verdict on an answer; `truth` is a segment, too."""
        expected = read_segment(truth)
        is_right = expected is not None and overlap(answer, expected) >= RIGHT_OVERLAP
        return AnswerLabel.CORRECT if is_right else AnswerLabel.INCORRECT


def grounding_metrics(items: Sequence[GradedItem]) -> dict[str, float]:
    """`R@0.3`, `R@0.5`, `R@0.7`: shares of answers with at least so much overlap; `mIoU`: the mean overlap."""
    overlaps = [overlap(item.answer, item.sample.video_segment_seconds or (0.0, 0.0)) for item in items]
    recalls = {f"R@{least:g}": fmean(value >= least for value in overlaps) for least in RECALL_OVERLAPS}
    return {**recalls, "mIoU": fmean(overlaps)}
