"""Boxes over time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.boxes import box_iou
from verl_video_tools.core.tracks import box_at, mean_iou_on_track, track_iou

A, B, HALF = (0, 0, 4, 4), (4, 4, 8, 8), (0, 0, 2, 4)

boxes = st.tuples(*[st.integers(0, 9)] * 4)
tracks = st.dictionaries(st.integers(0, 9), boxes, max_size=6).map(lambda track: sorted(track.items()))


@given(predicted=tracks, truth=tracks)
def test_without_tolerance_it_is_the_sum_over_common_times(predicted: list, truth: list) -> None:
    ours, theirs = dict(predicted), dict(truth)
    times = ours.keys() | theirs.keys()
    overlap = sum(box_iou(ours[time], theirs[time]) for time in ours.keys() & theirs.keys())
    assert track_iou(predicted, truth) == pytest.approx(overlap / len(times) if times else 0.0)


@given(predicted=tracks, truth=tracks, tolerance=st.floats(0, 3), seed=st.randoms())
def test_order_counts_for_nothing(predicted: list, truth: list, tolerance: float, seed) -> None:
    shuffled = list(predicted)
    seed.shuffle(shuffled)
    assert track_iou(shuffled, truth, tolerance) == track_iou(predicted, truth, tolerance)
    assert mean_iou_on_track(shuffled, truth) == pytest.approx(mean_iou_on_track(predicted, truth))
    assert 0.0 <= track_iou(predicted, truth, tolerance) <= 1.0


def test_each_time_is_matched_once_the_nearest_first() -> None:
    truth = [(1.0, A), (2.0, B)]
    assert track_iou([(1.1, A), (2.2, B)], truth, 0.5) == 1.0
    assert track_iou([(1.1, A), (1.2, A)], truth, 0.5) == pytest.approx(1 / 3)  # repeating a box does not pay
    assert track_iou([(1.4, A), (1.1, HALF)], truth, 0.5) == pytest.approx(0.5 / 3)
    assert track_iou([(1.1, A)], truth, 0.5) == 0.5  # nor does leaving out one
    assert track_iou([(1.1, A), (2.2, B)], truth) == 0.0


def test_improper_boxes_and_times_are_misses() -> None:
    truth = [(1.0, A)]
    assert track_iou([(1.0, (4, 0, 0, 4))], truth) == 0.0
    assert track_iou([(1.0, A), (math.nan, A)], truth, 9.0) == 0.5
    assert mean_iou_on_track([(1.0, A), (math.inf, A)], truth) == 0.5
    assert mean_iou_on_track([(1.0, (4, 0, 0, 4))], truth) == 0.0
    assert track_iou([], []) == mean_iou_on_track([], truth) == mean_iou_on_track([(1.0, A)], []) == 0.0


def test_between_its_times_a_track_moves_evenly() -> None:
    track = [(3.0, (8, 0, 12, 4)), (1.0, (0, 0, 4, 4))]
    assert box_at(track, 1.0) == (0, 0, 4, 4)
    assert box_at(track, 1.5) == (2, 0, 6, 4)
    assert box_at(track, 3.0) == (8, 0, 12, 4)
    assert box_at(track, 0.99) is None and box_at(track, 3.01) is None and box_at([], 1.0) is None
    assert mean_iou_on_track([(1.5, (2, 0, 6, 4)), (2.0, (4, 0, 6, 4)), (9.0, A)], track) == pytest.approx(0.5)


def test_what_is_no_track_is_refused() -> None:
    with pytest.raises(ValueError, match="left, top, right, bottom"):
        track_iou([(1.0, (0, 0, 4))], [])
    with pytest.raises(ValueError, match="tolerance_seconds"):
        track_iou([], [], -1.0)
