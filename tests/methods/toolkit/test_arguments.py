"""Numbers in calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.methods.toolkit.contexts import context
from verl_video_tools.core.errors import CallRejected
from verl_video_tools.methods.toolkit.calls import finite_number, format_seconds, time_argument


@pytest.mark.parametrize(
    ("value", "number", "number_with_text"),
    [
        (4, 4.0, 4.0),
        (4.5, 4.5, 4.5),
        ("4.5", None, 4.5),
        (" 4 ", None, 4.0),
        ("soon", None, None),
        ("", None, None),
        (True, None, None),
        (None, None, None),
        ([4], None, None),
        (float("inf"), None, None),
        ("nan", None, None),
        ("9" * 400, None, None),
        (10**400, None, None),
    ],
)
def test_finite_number(value: Any, number: float | None, number_with_text: float | None) -> None:
    assert finite_number(value, read_text=False) == number
    assert finite_number(value, read_text=True) == number_with_text


@pytest.mark.parametrize(("seconds", "meant"), [(0, 0), (99.5, 99.5), (100, 100), (100.05, 100)])
def test_the_label_of_the_last_frame_may_lie_beyond_the_end(seconds: float, meant: float) -> None:
    assert time_argument({"t": seconds}, "t", context().info) == meant


@pytest.mark.parametrize("seconds", [-0.01, 100.06, 200])
def test_a_time_outside_the_video_is_refused(seconds: float) -> None:
    with pytest.raises(CallRejected, match=r"out_of_range: t .* is outside the video"):
        time_argument({"t": seconds}, "t", context().info)


@pytest.mark.parametrize(
    ("seconds", "decimals", "told"),
    [(100.0, 2, "100.00"), (0.29, 2, "0.29"), (12.994, 2, "12.99"), (12.999, 2, "12.99"), (12.96, 1, "12.9")],
)
def test_told_seconds(seconds: float, decimals: int, told: str) -> None:
    assert format_seconds(seconds, decimals) == told


@given(st.floats(min_value=0.01, max_value=1e6), st.integers(min_value=1, max_value=2))
def test_what_is_told_may_be_asked_for(seconds: float, decimals: int) -> None:
    assert seconds - 10**-decimals - 1e-9 <= float(format_seconds(seconds, decimals)) <= seconds
