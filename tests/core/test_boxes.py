"""Boxes and points, against a count of small cells, and the algebra that every overlap obeys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.boxes import (
    Box,
    box_giou,
    box_iou,
    centre_distance,
    centre_reward,
    giou_reward,
    point_in_box,
)

REWARDS = (box_iou, giou_reward, centre_reward)
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
def test_overlaps_are_those_of_counted_cells(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    shared, union = cells(first) & cells(second), cells(first) | cells(second)
    edges = [*map(min, first[:2], second[:2]), *map(max, first[2:], second[2:])]
    hull = cells(edges)
    assert box_iou(first, second) == pytest.approx(len(shared) / len(union))
    giou = len(shared) / len(union) - (len(hull) - len(union)) / len(hull)
    assert box_giou(first, second) == pytest.approx(giou)
    assert giou_reward(first, second) == pytest.approx((1 + giou) / 2)


@given(first=whole_boxes, second=whole_boxes)
def test_centres(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    apart = math.hypot(
        (first[0] + first[2] - second[0] - second[2]) / 2, (first[1] + first[3] - second[1] - second[3]) / 2
    )
    diagonal = math.hypot(
        max(first[2], second[2]) - min(first[0], second[0]), max(first[3], second[3]) - min(first[1], second[1])
    )
    assert centre_distance(first, second) == pytest.approx(apart)
    assert centre_reward(first, second) == pytest.approx(1 - apart / diagonal)


@given(point=st.tuples(st.integers(-1, 17), st.integers(-1, 17)), box=whole_boxes)
def test_a_point_is_in_the_cells_of_a_box(point: tuple[int, int], box: tuple[int, ...]) -> None:
    assert point_in_box(point, box) == (point in cells(box))


@given(first=any_boxes, second=any_boxes)
def test_any_four_numbers_give_a_reward_that_knows_no_order(first: Box, second: Box) -> None:
    for reward in REWARDS:
        assert 0.0 <= reward(first, second) <= 1.0
        assert reward(first, second) == reward(second, first)
    assert -1.0 <= box_giou(first, second) <= box_iou(first, second)
    assert centre_distance(first, second) >= 0.0


@given(box=any_boxes)
def test_a_box_meets_itself(box: Box) -> None:
    for reward in REWARDS:
        assert reward(box, box) == (1.0 if Box(*box).is_proper() else 0.0)


@pytest.mark.parametrize("improper", IMPROPER)
def test_a_box_that_covers_nothing_is_worth_no_more_than_one_that_misses(improper: Sequence[float]) -> None:
    truth = (0, 0, 4, 4)
    for reward in REWARDS:
        assert reward(improper, truth) == reward(truth, improper) == 0.0
        assert reward((1000, 1000, 1001, 1001), truth) >= 0.0
    assert box_giou(improper, truth) == -1.0 < box_giou((1000, 1000, 1001, 1001), truth)
    assert centre_distance(improper, truth) == math.inf
    assert not point_in_box((0, 0), improper)


def test_a_nearer_box_is_worth_more_though_neither_overlaps() -> None:
    truth, near, far = (0, 0, 4, 4), (5, 0, 9, 4), (50, 0, 54, 4)
    assert box_iou(near, truth) == box_iou(far, truth) == 0.0
    assert giou_reward(near, truth) > giou_reward(far, truth) > 0.0
    assert centre_reward(near, truth) > centre_reward(far, truth) > 0.0


@pytest.mark.parametrize("function", [*REWARDS, box_giou, centre_distance])
def test_three_numbers_are_no_box(function: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match="left, top, right, bottom"):
        function((0, 0, 4), (0, 0, 4, 4))
    with pytest.raises(ValueError, match=r"\[x, y\]"):
        point_in_box((0, 0, 4), (0, 0, 4, 4))


def test_a_point_that_is_not_finite_is_nowhere() -> None:
    assert not point_in_box((math.nan, 1), (0, 0, 4, 4))
    assert not point_in_box((math.inf, 1), (0, 0, 4, 4))
