"""Metrics over hand-made rollouts: every figure below can be checked by eye."""

from dataclasses import replace

import pytest

from tests.group_method import FrameThinkerInGroups
from verl_video_tools.core.errors import CallError
from verl_video_tools.core.types import (
    CacheUse,
    CallRecord,
    FrameRecord,
    StopReason,
    Trajectory,
    Turn,
    VideoInfo,
)
from verl_video_tools.records import metrics
from verl_video_tools.records.metrics import Rollout, rollout_metrics


def frames(count: int) -> list[FrameRecord]:
    return [FrameRecord(index=i, timestamp_seconds=i / 5, width=56, height=56) for i in range(count)]


def rollout(
    uid: str, score: float, calls: list[CallRecord], stop: StopReason, flags: list[str] | None = None
) -> Rollout:
    trajectory = Trajectory(
        method="framethinker",
        question="?",
        initial_frames=frames(8),
        turns=[Turn(text="", calls=calls)],
        stop_reason=stop,
        flags=flags or [],
    )
    reward = {"score": score, "acc": float(score > 0), "accuracy": score, "ccv": 1.0}
    return Rollout(
        uid, trajectory, reward, num_generated_tokens=10, num_observation_tokens=4, components=("accuracy", "ccv")
    )


def executed(latency_ms: float) -> CallRecord:
    return CallRecord("choose_frames", {}, ok=True, frames=frames(8), latency_ms=latency_ms)


def refused(code: str) -> CallRecord:
    return CallRecord("choose_frames", {}, ok=False, error=CallError(code, "no"))


def test_a_step_of_two_groups() -> None:
    metrics = rollout_metrics(
        [
            rollout("a", 1.0, [executed(10.0), executed(30.0)], StopReason.ANSWER),
            rollout("a", 0.0, [refused("out_of_range")], StopReason.INVALID_ACTION),
            rollout("b", 0.0, [], StopReason.ANSWER),
            rollout("b", 0.0, [], StopReason.VIDEO_ERROR, flags=["video_error"]),
        ]
    )
    assert metrics["video_tools/framethinker/score/mean"] == 0.25
    assert metrics["video_tools/framethinker/ccv/mean"] == 1.0
    assert metrics["tool/choose_frames/calls_per_rollout"] == 0.75
    assert metrics["tool/choose_frames/success_rate"] == pytest.approx(2 / 3)
    assert metrics["tool/choose_frames/latency_ms_p50"] == 10.0
    assert metrics["tool/error/out_of_range"] == 0.25
    assert metrics["tool/executed_per_rollout"] == 0.5
    assert metrics["stop/answer"] == 0.5
    assert metrics["stop/video_error"] == 0.25
    assert sum(value for name, value in metrics.items() if name.startswith("stop/")) == 1.0
    assert metrics["frames/initial/mean"] == 8.0
    assert metrics["frames/tool/mean"] == 4.0
    assert metrics["frames/total/mean"] == 12.0
    assert metrics["rollout/flagged"] == 1.0
    assert metrics["group/unequal_reward_rate"] == 0.5


def test_names_that_a_policy_makes_up_count_as_one() -> None:
    """A logger keeps every name for good, and some refuse long ones."""
    made_up = [CallRecord(f"look {i}" * 99, {}, ok=False, error=CallError("unknown_tool", "no")) for i in range(5)]
    plain = rollout("a", 0.0, [executed(1.0), *made_up], StopReason.ANSWER)
    plain.trajectory.video = VideoInfo(10.0, 50, 5.0, 64, 36)
    metrics = rollout_metrics([plain])
    per_rollout = {name: value for name, value in metrics.items() if name.endswith("/calls_per_rollout")}
    assert per_rollout == {"tool/choose_frames/calls_per_rollout": 1.0, "tool/unknown/calls_per_rollout": 5.0}
    assert metrics["tool/error/unknown_tool"] == 5.0
    plain.trajectory.method = "of a later version"
    assert f"tool/{made_up[0].name}/success_rate" in rollout_metrics([plain])


def test_a_flagged_rollout_does_not_make_its_group_unequal() -> None:
    metrics = rollout_metrics(
        [rollout("a", 1.0, [], StopReason.ANSWER), rollout("a", 0.0, [], StopReason.ABORTED, flags=["invariant"])]
    )
    assert metrics["group/unequal_reward_rate"] == 0.0
    assert metrics["invariant/violations"] == 1.0


def test_groups_of_one_rollout_have_no_rate_of_unequal_rewards() -> None:
    """As in validation: 0 looked like a policy whose rollouts all earn the same."""
    alone = [rollout(uid, score, [], StopReason.ANSWER) for uid, score in (("a", 1.0), ("b", 0.0))]
    assert "group/unequal_reward_rate" not in rollout_metrics(alone)
    assert rollout_metrics([*alone, alone[0]])["group/unequal_reward_rate"] == 0.0


def test_cache_metrics() -> None:
    rollouts = [rollout("a", 0.0, [], StopReason.ANSWER) for _ in range(3)]
    rollouts[0].trajectory.cache = CacheUse(hits=0, misses=8, stored_bytes=1000)
    rollouts[1].trajectory.cache = CacheUse(hits=24, misses=8, stored_bytes=3000)
    metrics = rollout_metrics(rollouts)
    assert metrics["cache/hit_rate"] == 0.6
    assert metrics["cache/bytes"] == 3000.0
    assert rollout_metrics(rollouts[2:])["cache/hit_rate"] == 0.0  # nothing was asked for


def test_cached_tokens_are_the_mean_of_what_the_engine_told() -> None:
    plain = rollout("a", 0.0, [], StopReason.ANSWER)
    told = [replace(plain, num_cached_tokens=number) for number in (0, 30, None, 60)]
    assert rollout_metrics(told)["prefix/cached_tokens"] == 30.0
    assert "prefix/cached_tokens" not in rollout_metrics([plain])


def test_what_the_judge_did() -> None:
    plain = rollout("a", 1.0, [], StopReason.ANSWER)
    assert not any(name.startswith("judge/") for name in rollout_metrics([plain]))
    keys = ("calls", "cache_hits", "failed", "attempts", "failed_attempts", "latency_ms", "skipped")
    rows = [(1, 0, 0, 2, 1, 30.0, 0), (1, 1, 0, 0, 0, 0.0, 0), (1, 0, 1, 2, 2, 0.0, 0), (0, 0, 0, 0, 0, 0.0, 1)]
    judged = [
        replace(plain, reward={**plain.reward, **{f"judge_{key}": value for key, value in zip(keys, row, strict=True)}})
        for row in rows
    ]
    metrics = {name: value for name, value in rollout_metrics(judged).items() if name.startswith("judge/")}
    assert metrics == {
        "judge/calls": 3,
        "judge/failures": 1,
        "judge/failed_attempt_rate": 0.75,
        "judge/cache_hits": 1,
        "judge/decided_by_rule": 1,
        "judge/latency_ms_p50": 30.0,
    }


def test_no_rollouts_no_metrics() -> None:
    assert rollout_metrics([]) == {}


def test_components_of_a_group_are_not_scored_where_a_rollout_was_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"in_groups": FrameThinkerInGroups()}
    monkeypatch.setattr(metrics, "_installed_method", known.get)
    trained = {"trajectory": Trajectory("in_groups", "?"), "advantage": 0.0}
    assert metrics.not_scored(trained) == []
    assert metrics.not_scored(trained | {"advantage": None}) == ["curiosity", "length"]
    assert metrics.not_scored({"trajectory": Trajectory("in_groups", "?")}) == ["curiosity", "length"]
    assert metrics.not_scored({"trajectory": Trajectory("of another version", "?")}) == []
    composed = Trajectory("compose", "?", provenance={"rewards": ["accuracy"], "tools": []})
    assert metrics.not_scored({"trajectory": composed}) == []
    assert metrics.not_scored(trained | {"not_scored": ["length"]}) == ["length"], "a line that says so itself"


def test_what_was_not_scored_has_no_mean() -> None:
    provenance = {"rewards": ["accuracy", "curiosity"], "group_rewards": ["curiosity"], "tools": []}
    recorded = {
        "uid": "a",
        "reward": {"score": 1.0, "acc": 1.0, "accuracy": 1.0, "curiosity": 0.0},
        "trajectory": Trajectory("compose", "?", provenance=provenance, stop_reason=StopReason.ANSWER),
    }
    name = "video_tools/compose/curiosity/mean"
    held_out, trained = (Rollout.from_line(recorded | {"advantage": advantage}) for advantage in (None, 0.0))
    assert name not in rollout_metrics([held_out]) and rollout_metrics([trained])[name] == 0.0
