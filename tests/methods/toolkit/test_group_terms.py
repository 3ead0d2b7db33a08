"""Terms that compare rollouts, against calculations by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_video_tools.core.types import CallRecord, FrameRecord, Tile, Trajectory, Turn
from verl_video_tools.grading.overlap import covered_iou
from verl_video_tools.methods import toolkit as vt


def call(*seconds: float, ok: bool = True) -> CallRecord:
    return CallRecord("look", {}, ok=ok, frames=[FrameRecord(int(at), at, 28, 28) for at in seconds])


def rollout(*calls: CallRecord, texts: tuple[str, ...] = ("abc",)) -> Trajectory:
    turns = [Turn(text=text) for text in texts]
    turns[0].calls = list(calls)
    return Trajectory(method="m", question="?", turns=turns)


def test_what_a_rollout_looked_at() -> None:
    looked = rollout(call(4.0, 2.0, 3.0), call(9.0), call(1.0, 8.0, ok=False), call())
    assert vt.looked_at_spans(looked) == [(2.0, 4.0), (9.0, 9.0)]
    assert vt.looked_at_spans(looked, margin_seconds=0.5) == [(1.5, 4.5), (8.5, 9.5)]
    grid = CallRecord("grid", {}, ok=True, frames=[FrameRecord(2, 2.0, 84, 28, tiles=(Tile(2, 2.0), Tile(7, 7.0)))])
    assert vt.looked_at_spans(rollout(grid)) == [(2.0, 7.0)]
    assert vt.uses_tools(looked) and not vt.uses_tools(rollout(call(1.0, ok=False)))
    spoken = rollout(texts=("abc", "de"))
    spoken.turns[1].reasoning = "four"
    assert vt.written_characters(spoken) == 9


@pytest.mark.parametrize(
    ("used", "threshold", "expected"),
    [
        ([True, False, False, False], 0.5, [0.25, 0.0, 0.0, 0.0]),
        ([True, True, False, False], 0.5, [0.0] * 4),  # as often as wanted
        ([True, True, True, False], 0.5, [0.0] * 4),
        ([True, True, False, False, False], 0.6, [0.2, 0.2, 0.0, 0.0, 0.0]),
        ([False, False], 0.3, [0.0, 0.0]),
        ([], 0.3, []),
    ],
)
def test_curiosity(used: list[bool], threshold: float, expected: list[float]) -> None:
    assert vt.curiosity_bonus(used, threshold) == pytest.approx(expected)


def test_diversity() -> None:
    spans = [[(0.0, 10.0)], [(5.0, 15.0)], [(20.0, 30.0)], []]
    # IoU of the first two is 5/15; the third meets nobody; the fourth looked at nothing and is nobody's measure.
    assert vt.span_diversity(spans) == pytest.approx([1 - (1 / 3) / 2, 1 - (1 / 3) / 2, 1.0, 0.0])
    assert vt.span_diversity([[(0.0, 2.0), (4.0, 6.0)], [(0.0, 6.0)]]) == pytest.approx([1 - 4 / 6] * 2)
    assert vt.span_diversity([[(0.0, 1.0)], []]) == [0.0, 0.0]
    assert vt.span_diversity([[(3.0, 3.0)], [(0.0, 1.0)]]) == [0.0, 0.0]  # a single frame covers nothing
    assert vt.span_diversity([[(0.1, 0.7), (0.3, 1.3)]] * 3) == [0.0] * 3  # exactly: equal rewards teach nothing
    assert vt.span_diversity([]) == []


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([10, 30, 20], [0.0, -1.0, -0.5]), ([7, 7, 7], [0.0] * 3), ([5], [0.0]), ([], []), ([0, 4], [0.0, -1.0])],
)
def test_relative_length(lengths: list[float], expected: list[float]) -> None:
    assert vt.relative_length_penalty(lengths) == expected


@pytest.mark.parametrize(
    ("used", "right", "expected"),
    [
        ([True, True, False, False], [True, False, False, False], [1.0, 0.0, 0.0, 0.0]),
        ([True, False, False], [True, True, False], [0.5, 0.0, 0.0]),  # one of two did without
        ([True, False], [True, True], [0.0, 0.0]),
        ([True, True], [True, False], [0.0, 0.0]),  # nobody tried without
        ([], [], []),
    ],
)
def test_necessity(used: list[bool], right: list[bool], expected: list[float]) -> None:
    assert vt.tool_necessity(used, right) == expected
    if used:
        with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter"):
            vt.tool_necessity(used, right[1:])


SECONDS = st.integers(0, 40)
COVERS = st.lists(st.tuples(SECONDS, SECONDS), max_size=4)


@given(first=COVERS, second=COVERS)
def test_overlap_of_covers_equals_a_count_of_seconds(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    ours, theirs = ({at for start, end in spans for at in range(start, end)} for spans in (first, second))
    expected = len(ours & theirs) / len(ours | theirs) if ours | theirs else 0.0
    assert covered_iou(first, second) == pytest.approx(expected)
