"""Rewards of a group: what is paid, whose results are refused, and what a class may declare."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tests.group_method import FrameThinkerInGroups
from verl_video_tools.core.errors import GroupScoreError
from verl_video_tools.core.method import zero_reward
from verl_video_tools.core.types import CallRecord, Sample, StopReason, Trajectory, Turn, VideoInfo
from verl_video_tools.methods.breakdown import group_rewards
from verl_video_tools.methods.framethinker import FrameThinker

SAMPLE = Sample(question="?", ground_truth="B", video_path="v.mp4", question_type="mc")


def rollout(answer: str = "B", num_turns: int = 1, calls: bool = False) -> Trajectory:
    turns = [Turn(text="x") for _ in range(num_turns)]
    if calls:
        turns[0].calls = [CallRecord("choose_frames", {}, ok=True)]
    video = VideoInfo(10.0, 300, 30.0, 64, 36)
    return Trajectory("m", "?", video=video, turns=turns, answer=answer, stop_reason=StopReason.ANSWER)


async def rewards_of(method: FrameThinker, group: list[Trajectory]) -> list[dict[str, float]]:
    rewards = [await method.score(each, SAMPLE) for each in group]
    return [{"acc": method.acc(reward, SAMPLE), **reward} for reward in rewards]


async def test_a_group_by_hand() -> None:
    method = FrameThinkerInGroups(ccv=False, choose_bonus=0.0)
    group = [rollout("B"), rollout("A"), rollout("A", 3, calls=True), rollout("B", 2)]
    alone = await rewards_of(method, group)
    assert [reward["score"] for reward in alone] == [1.0, 0.0, 0.0, 1.0]
    assert all(reward["curiosity"] == reward["length"] == 0.0 for reward in alone)
    found = group_rewards(method, group, alone, SAMPLE)
    assert [reward["curiosity"] for reward in found] == pytest.approx([0.0, 0.0, 0.6 - 0.25, 0.0])
    assert [reward["length"] for reward in found] == pytest.approx([0.0, 0.0, -0.25, -0.125])
    assert [reward["score"] for reward in found] == pytest.approx([1.0, 0.0, 0.1, 0.875])
    assert [reward["acc"] for reward in found] == [1.0, 0.0, 0.0, 1.0]
    assert {frozenset(reward) for reward in found} == {frozenset(alone[0])}
    assert group_rewards(method, group[:1], alone[:1], SAMPLE) == alone[:1]


async def test_an_unpaid_component_is_told_and_not_paid() -> None:
    class Told(FrameThinkerInGroups):
        unpaid_components: ClassVar[tuple[str, ...]] = (*FrameThinker.unpaid_components, "curiosity")

    method = Told(ccv=False)
    group = [rollout("B"), rollout("B"), rollout("B", calls=True)]
    found = group_rewards(method, group, await rewards_of(method, group), SAMPLE)
    assert found[2]["curiosity"] == pytest.approx(0.6 - 1 / 3)
    assert found[2]["score"] == found[2]["accuracy"] + found[2]["action_bonus"]


async def test_acc_follows_the_compared_reward() -> None:
    class ByGroup(FrameThinkerInGroups):
        def acc(self, reward: Any, sample: Sample) -> float:
            return float(reward["length"] < 0)

    method = ByGroup(ccv=False)
    group = [rollout(), rollout(num_turns=2)]
    found = group_rewards(method, group, await rewards_of(method, group), SAMPLE)
    assert [reward["acc"] for reward in found] == [0.0, 1.0]


NAN = {"curiosity": float("nan"), "length": 0.0}
FINE = {"curiosity": 0.0, "length": 0.0}


@pytest.mark.parametrize(
    ("score_group", "said"),
    [
        (lambda *_: [FINE], "gave 1 results for 2 rollouts"),
        (lambda *_: [FINE, {"curiosity": 1.0}], r"gave \['curiosity'\], and group_components are \['curiosity', 'len"),
        (lambda *_: [FINE, FINE | {"accuracy": 1.0}], r"gave \['accuracy', 'curiosity'"),
        (lambda *_: [FINE, NAN], "finite numbers"),
        (lambda *_: [FINE, FINE | {"length": "long"}], "score_group failed"),
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: None, "score_group failed"),
    ],
)
async def test_what_is_no_reward_is_refused_by_name(score_group: Callable[..., Any], said: str) -> None:
    class Bad(FrameThinkerInGroups):
        def score_group(self, *arguments: Any) -> Any:
            return score_group(*arguments)

    method = Bad(ccv=False)
    group = [rollout(), rollout()]
    with pytest.raises(GroupScoreError, match=f"Bad.score_group.*{said}|{said}"):
        group_rewards(method, group, await rewards_of(method, group), SAMPLE)


def test_a_class_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(TypeError, match=r"group_components has \['novelty'\]"):

        @dataclass(frozen=True, kw_only=True)
        class Unknown(FrameThinkerInGroups):
            group_components: ClassVar[tuple[str, ...]] = ("curiosity", "novelty")

    with pytest.raises(TypeError, match="no score_group"):

        @dataclass(frozen=True, kw_only=True)
        class Unscored(FrameThinker):
            reward_components: ClassVar[tuple[str, ...]] = (*FrameThinker.reward_components, "curiosity")
            group_components: ClassVar[tuple[str, ...]] = ("curiosity",)


async def test_components_leave_the_groups_to_score_group() -> None:
    class Both(FrameThinkerInGroups):
        async def components(self, *arguments: Any) -> dict[str, float]:
            return await super().components(*arguments) | {"curiosity": 1.0}

    with pytest.raises(TypeError, match="components gave"):
        await Both(ccv=False).score(rollout(), SAMPLE)


async def test_components_of_a_rollout_that_earns_nothing_leave_them_out_too() -> None:
    class Nothing(FrameThinkerInGroups):
        async def components(self, *arguments: Any) -> dict[str, float]:
            return self.no_components()

    method = Nothing()
    assert await method.score(rollout(), SAMPLE) == zero_reward(method)
    assert {"curiosity", "length"} <= zero_reward(method).keys()


async def test_the_example_of_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "groups.md").read_text(encoding="utf-8")
    method_code, _ = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    module = ModuleType("docs_groups")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(method_code, vars(module))
    method = module.CuriousFrameThinker(ccv=False)
    group = [rollout(), rollout(), rollout(), rollout(), rollout(calls=True)]
    found = group_rewards(method, group, await rewards_of(method, group), SAMPLE)
    assert [reward["curiosity"] for reward in found] == pytest.approx([0.0] * 4 + [0.5 * (0.3 - 0.2)])
