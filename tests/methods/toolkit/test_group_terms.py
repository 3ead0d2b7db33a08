"""Terms that compare rollouts, against calculations by hand."""

from __future__ import annotations

import pytest

from verl_video_tools.core.types import CallRecord, FrameRecord, Trajectory, Turn
from verl_video_tools.methods import toolkit as vt


def call(*seconds: float, ok: bool = True) -> CallRecord:
    return CallRecord("look", {}, ok=ok, frames=[FrameRecord(int(at), at, 28, 28) for at in seconds])


def rollout(*calls: CallRecord) -> Trajectory:
    return Trajectory(method="m", question="?", turns=[Turn("abc", calls=list(calls))])


def test_uses_tools() -> None:
    assert vt.uses_tools(rollout(call(9.0), call(1.0, ok=False)))
    assert not vt.uses_tools(rollout(call(1.0, ok=False)))


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
