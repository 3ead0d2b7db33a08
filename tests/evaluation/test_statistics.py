"""Errors by video and what is made of them. How often intervals hold: tests/benchmarks/test_interval_coverage.py."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from verl_video_tools.evaluation.statistics import (
    MIN_VIDEOS,
    mean_by_video,
    paired_difference,
    share_interval,
    student_quantile,
)


def test_fewer_videos_are_too_few() -> None:
    right = [1, 0, 1] * MIN_VIDEOS
    videos = [str(number // 3) for number in range(len(right))]
    enough, fewer = mean_by_video(right, videos), mean_by_video(right[3:], videos[3:])
    low, high = share_interval(enough) or (0, 0)
    assert low < 2 / 3 < high
    assert share_interval(fewer) is None
    assert paired_difference(right[3:], videos[3:]).p_value is None


def test_a_video_with_most_of_the_items_is_as_few() -> None:
    videos = [str(number) for number in range(99)] + ["large"] * 100
    estimate = mean_by_video([1, 0] * 99 + [1], videos)
    assert (estimate.num_videos, round(estimate.effective_videos, 1)) == (100, 3.9)
    assert share_interval(estimate) is None


def test_errors_are_those_of_independent_videos() -> None:
    """With one item a video: the textbook's standard error of a mean. Ten copies of each item say no more."""
    values, videos = [1.0] * 30 + [0.0] * 70, [str(number) for number in range(100)]
    single, copied = mean_by_video(values, videos), mean_by_video(values * 10, videos * 10)
    assert single.standard_error == pytest.approx((0.3 * 0.7 / 99) ** 0.5)
    assert copied.standard_error == pytest.approx(single.standard_error)
    assert share_interval(copied) == pytest.approx(share_interval(single))


def test_the_mean_of_groups_has_the_error_of_the_jackknife() -> None:
    """Each video left out once: 30 videos, of which some are in both groups."""
    random = np.random.default_rng(0)
    values, videos = random.integers(0, 2, 90).astype(float), random.integers(0, 30, 90)
    groups = np.where(random.random(90) < 0.3, "a", "b")

    def mean(chosen: np.ndarray) -> float:
        return float(np.mean([values[chosen & (groups == group)].mean() for group in "ab"]))

    without = np.array([mean(videos != video) for video in np.unique(videos)])
    found = mean_by_video(values.tolist(), videos.astype(str).tolist(), groups.tolist())
    assert found.value == pytest.approx(mean(np.full(90, True)))
    assert found.standard_error == pytest.approx(((1 - 1 / len(without)) * ((without - found.value) ** 2).sum()) ** 0.5)


def test_where_all_are_right_each_video_counts_once() -> None:
    estimate = mean_by_video([1.0] * 300, [str(number % 100) for number in range(300)])
    assert estimate.standard_error == 0
    low, high = share_interval(estimate) or (0, 0)
    assert high == pytest.approx(1) and low == pytest.approx(1 / (1 + student_quantile(99) ** 2 / 100))


@pytest.mark.parametrize(("degrees", "value"), [(9, 2.2622), (29, 2.0452), (99, 1.9842), (1e9, 1.9600)])
def test_quantiles_of_students_t(degrees: float, value: float) -> None:
    """Values of the tables in textbooks."""
    assert student_quantile(degrees) == pytest.approx(value, abs=2e-4)


def test_runs_that_do_not_differ_are_no_evidence() -> None:
    videos = [str(number) for number in range(50)]
    same = paired_difference([0.0] * 50, videos)
    assert (same.interval, same.p_value) == (None, 1.0)
    better = paired_difference([1.0] * 12 + [0.0] * 38, videos)
    assert better.p_value == pytest.approx(2 / 2**12 / 2, abs=2e-4)  # all twelve one way or the other, of which half
    assert paired_difference([1.0] * 12 + [0.0] * 38, videos) == better


def test_signs_of_many_videos_are_never_all_in_memory() -> None:
    videos = [str(number) for number in range(5000)]
    tracemalloc.start()
    try:
        paired_difference([1.0, -1.0] * 2500, videos)
        assert tracemalloc.get_traced_memory()[1] < 50e6, "9,999 signs of 8 bytes for 5,000 videos are 400e6"
    finally:
        tracemalloc.stop()
