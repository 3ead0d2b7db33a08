"""Overlap of boxes, against a count of small cells, and the algebra that every overlap obeys."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.regions import Box
from verl_video_tools.grading.overlap import box_iou

IMPROPER = [
    (5, 0, 3, 4),
    (0, 5, 4, 3),
    (2, 0, 2, 4),
    (0, 4, 4, 4),
    (0, 0, math.nan, 4),
    (0, 0, math.inf, 4),
    (-1.7e308, 0, 1.7e308, 4),
]

whole_boxes = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(1, 8), st.integers(1, 8)).map(
    lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3])
)
floats = st.floats(-1e300, 1e300, allow_nan=False)
any_boxes = st.tuples(floats, floats, floats, floats)


def cells(box: Sequence[int]) -> set[tuple[int, int]]:
    return {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}


@given(first=whole_boxes, second=whole_boxes)
def test_overlap_is_that_of_counted_cells(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    shared, union = cells(first) & cells(second), cells(first) | cells(second)
    assert box_iou(first, second) == pytest.approx(len(shared) / len(union))


@given(first=any_boxes, second=any_boxes)
def test_any_four_numbers_give_a_share_that_knows_no_order(first: Box, second: Box) -> None:
    assert 0.0 <= box_iou(first, second) <= 1.0
    assert box_iou(first, second) == box_iou(second, first)


@given(box=any_boxes)
def test_a_box_meets_itself(box: Box) -> None:
    assert box_iou(box, box) == (1.0 if Box(*box).is_proper() else 0.0)


@pytest.mark.parametrize("improper", IMPROPER)
def test_a_box_that_covers_nothing_overlaps_nothing(improper: Sequence[float]) -> None:
    truth = (0, 0, 4, 4)
    assert box_iou(improper, truth) == box_iou(truth, improper) == 0.0


def test_three_numbers_are_no_box() -> None:
    with pytest.raises(ValueError, match="left, top, right, bottom"):
        box_iou((0, 0, 4), (0, 0, 4, 4))
