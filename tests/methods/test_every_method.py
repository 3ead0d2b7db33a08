"""What the base class does for every method, so that no author can forget it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import (
    Judge,
    Method,
    PixelEnvelope,
    Sample,
    StopReason,
    Trajectory,
    Turn,
    VideoInfo,
)
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.methods.direct import Direct
from verl_video_tools.rollout.cost import max_cost_call

VIDEO = VideoInfo(duration_seconds=100.0, num_frames=3000, average_fps=30.0, width=96, height=64)
SAMPLE = Sample("Which?", "A", "v.mp4", "mc", ("a cat", "a dog"))
OPEN = replace(SAMPLE, question_type="open", ground_truth="a cat", options=())


@dataclass(frozen=True, kw_only=True)
class Careless(Direct):
    """Pays everything, whatever happened; its author checks nothing."""

    name: ClassVar[str] = "careless"

    async def components(self, trajectory: Trajectory, sample: Sample, judge: Judge | None) -> dict[str, float]:
        return {"accuracy": 1.0}


def lost(method: str) -> list[Trajectory]:
    turn = Turn("<answer>A</answer>", answer="A", well_formed=True)
    return [
        Trajectory(method, "Which?", VIDEO, turns=[turn], stop_reason=StopReason.ABORTED, answer="A"),
        Trajectory(method, "Which?", VIDEO, turns=[turn], stop_reason=StopReason.VIDEO_ERROR, answer="A"),
        Trajectory(method, "Which?", None, turns=[turn], stop_reason=StopReason.ANSWER, answer="A"),
    ]


@pytest.mark.parametrize("method", [*map(get_method, METHOD_NAMES), Careless()], ids=lambda method: method.name)
async def test_a_lost_rollout_earns_nothing(method: Method) -> None:
    for number in range(3):
        assert await method.score(lost(method.name)[number], SAMPLE) == zero_reward(method), number


async def test_an_author_need_not_ask_for_the_judge_nor_add_up() -> None:
    answered = Trajectory("careless", "Which?", VIDEO, stop_reason=StopReason.ANSWER, answer="A")
    assert await Careless().score(answered, SAMPLE) == {"score": 1.0, "accuracy": 1.0}
    with pytest.raises(UsageError, match="needs a judge"):
        await Careless().score(answered, OPEN)


def test_common_fields_are_checked_for_every_method() -> None:
    with pytest.raises(UsageError, match=r"Careless\.tool_deadline_seconds must be above 0, got 0"):
        Careless(tool_deadline_seconds=0)
    with pytest.raises(UsageError, match=r"Careless\.tool_deadline_seconds must be above 0, got 0"):
        replace(Careless(), tool_deadline_seconds=0)


@pytest.mark.parametrize(("overridden", "instead"), [("__post_init__", "check_fields"), ("score", "components")])
def test_what_a_method_may_not_override_is_refused(overridden: str, instead: str) -> None:
    with pytest.raises(TypeError, match=rf"Forgetful overrides Method\.{overridden}; override {instead} instead"):
        type("Forgetful", (Direct,), {overridden: lambda self: None})


def test_a_method_without_a_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Direct, "recipe_budget")
    with pytest.raises(UsageError, match=r"Direct has no recipe_budget; write this class attribute, RolloutLimits\("):
        Direct()


async def test_components_that_are_not_those_declared_are_named() -> None:
    class Other(Careless):
        async def components(self, trajectory: Trajectory, sample: Sample, judge: Judge | None) -> dict[str, float]:
            return {"acuracy": 1.0}

    answered = Trajectory("careless", "Which?", VIDEO, stop_reason=StopReason.ANSWER, answer="A")
    with pytest.raises(TypeError, match=r"Other\.components gave \['acuracy'\], and reward_components are \['accuracy"):
        await Other().score(answered, SAMPLE)


@pytest.mark.parametrize("method", [name for name in METHOD_NAMES if name != "compose"])  # its file says both
def test_initial_frames_and_call_frames_mean_the_same_in_every_method(method: str) -> None:
    fields: dict[str, Any] = {"initial_frames": 6} if method == "direct" else {"initial_frames": 6, "call_frames": 10}
    configured = get_method(method, **fields)
    assert len(configured.plan_initial_frames(VIDEO, SAMPLE, PixelEnvelope())) == 6
    dearest = max_cost_call(configured, VIDEO, PixelEnvelope())
    assert (dearest is None) if method == "direct" else (dearest is not None and len(dearest) == 10)
