"""Temporal intersection over union."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.grading.overlap import boundary_agreement, temporal_recall
from verl_video_tools.rewards import temporal_iou


@pytest.mark.parametrize(
    ("first", "second", "iou"),
    [
        ([0, 10], [0, 10], 1.0),
        ([0, 10], [5, 15], 1 / 3),
        ([0, 10], [2, 4], 0.2),
        ([0, 10], [10, 20], 0.0),
        ([0, 10], [30, 40], 0.0),
        ([10, 0], [0, 10], 0.0),
        ([10, 0], [10, 0], 0.0),
        ([5, 5], [0, 10], 0.0),
        ([5, 5], [5, 5], 0.0),
        ([0, math.nan], [0, 10], 0.0),
        ([0, math.inf], [0, math.inf], 0.0),
        ((0.5, 1.5), [1.0, 2.0], 1 / 3),
    ],
)
def test_cases(first: list[float], second: list[float], iou: float) -> None:
    assert temporal_iou(first, second) == pytest.approx(iou)


@pytest.mark.parametrize("segment", [[], [1], [1, 2, 3]])
def test_a_segment_has_two_ends(segment: list[float]) -> None:
    with pytest.raises(ValueError, match="a segment is"):
        temporal_iou(segment, [0, 1])


SEGMENTS = st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))


@given(SEGMENTS, SEGMENTS)
def test_symmetric_and_bounded(first: tuple[float, float], second: tuple[float, float]) -> None:
    assert temporal_iou(first, second) == temporal_iou(second, first)
    assert 0.0 <= temporal_iou(first, second) <= 1.0


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4))
def test_a_segment_overlaps_itself_fully(start: float, length: float) -> None:
    assert temporal_iou([start, start + length], [start, start + length]) == 1.0


WHOLE_SEGMENTS = st.tuples(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))


@given(WHOLE_SEGMENTS, WHOLE_SEGMENTS, st.integers(-(10**6), 10**6))
def test_translation_changes_nothing(first: tuple[int, int], second: tuple[int, int], shift: int) -> None:
    """Whole seconds, so that shifting is exact."""
    moved = [[bound + shift for bound in segment] for segment in (first, second)]
    assert temporal_iou(*moved) == temporal_iou(first, second)


TRUTH = (10.0, 20.0)


@pytest.mark.parametrize(
    ("segment", "recall"),
    [((12, 18), 0.6), ((0, 100), 1.0), ((30, 40), 0.0), ((20, 10), 0.0), ((5, 5), 0.0), ((math.nan, 15), 0.0)],
)
def test_recall(segment: tuple[float, float], recall: float) -> None:
    assert temporal_recall(segment, TRUTH) == pytest.approx(recall)


@pytest.mark.parametrize("truth", [(20, 10), (10, 10), (0, math.inf)])
def test_nothing_covers_an_impossible_truth(truth: tuple[float, float]) -> None:
    assert temporal_recall((0, 30), truth) == temporal_iou((0, 30), truth) == 0.0


@given(SEGMENTS, SEGMENTS)
def test_recall_is_at_least_the_overlap(segment: tuple[float, float], truth: tuple[float, float]) -> None:
    assert 0.0 <= temporal_iou(segment, truth) <= temporal_recall(segment, truth) + 1e-9 <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("segment", "agreement"), [((10, 20), 1.0), ((12, 18), 0.98 * 0.98), ((0, 100), 0.9 * 0.2), ((10, 500), 0.0)]
)
def test_boundary_agreement(segment: tuple[float, float], agreement: float) -> None:
    assert boundary_agreement(segment, TRUTH, 100.0) == pytest.approx(agreement)


def test_a_duration_is_positive() -> None:
    with pytest.raises(ValueError, match="duration_seconds"):
        boundary_agreement(TRUTH, TRUTH, 0.0)
