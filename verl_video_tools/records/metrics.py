"""Metrics of a step's rollouts for the logger (names: `docs/training.md`), as pure functions of records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.method import method_of_rollout
from verl_video_tools.core.types import CallRecord, Method, StopReason, Trajectory
from verl_video_tools.methods import get_method


@dataclass(frozen=True)
class Rollout:
    """One finished rollout as the trainer sees it."""

    uid: str
    trajectory: Trajectory
    reward: Mapping[str, float]
    """The reward's breakdown, with the reward manager's names."""
    num_generated_tokens: int | None = None
    num_observation_tokens: int | None = None
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    """Tokens of the first turn's prompt in the engine's prefix cache; None if the engine does not report them."""
    num_sequences: int = 1
    """Training sequences: one, or several (`Method.context_policy`)."""
    components: Sequence[str] = field(default=())
    """Reward components of the rollout's method that were computed."""

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Rollout:
        """The rollout of a recorded line, as `records.records.read_records` gives it.

        Raises:
            KeyError: the line lacks its group, or the reward's `score` or `acc`.
            TypeError, ValueError: a part of the reward is not a number.
        """
        reward = {name: float(value) for name, value in line["reward"].items()}
        if missing := {"score", "acc"} - reward.keys():
            raise KeyError(f"reward.{min(missing)}")
        trajectory: Trajectory = line["trajectory"]
        missing_components = not_scored(line)
        return cls(
            uid=line["uid"],
            trajectory=trajectory,
            reward=reward,
            num_generated_tokens=line.get("num_generated_tokens"),
            num_observation_tokens=line.get("num_observation_tokens"),
            num_prompt_tokens=line.get("num_prompt_tokens"),
            num_cached_tokens=line.get("num_cached_tokens"),
            num_sequences=line.get("num_sequences", 1),
            components=[name for name in components_of(trajectory) if name not in missing_components],
        )


def components_of(trajectory: Trajectory) -> tuple[str, ...]:
    """Reward components of a recorded rollout: those that its record names, or those of its method."""
    if trajectory.provenance is None:
        return reward_components(trajectory.method)
    return tuple(str(name) for name in trajectory.provenance.get("rewards", ()))


def not_scored(line: Mapping[str, Any]) -> list[str]:
    """Components that a recorded line holds as 0 because they were not computed.

    A component that compares a group is not computed for a single rollout, as in validation. `vvt replay` names these
    components in the line. None are named for a method that is not installed."""
    if "not_scored" in line:
        return [str(name) for name in line["not_scored"]]
    trajectory: Trajectory = line["trajectory"]
    if line.get("advantage") is not None:  # a rollout of a training group, which was compared
        return []
    if trajectory.provenance is not None:
        return [str(name) for name in trajectory.provenance.get("group_rewards", ())]
    method = _installed_method(trajectory.method)
    return [] if method is None else list(method.group_components)


def reward_components(method: str) -> tuple[str, ...]:
    """Reward components of a recorded method; none if it is not installed."""
    installed = _installed_method(method)
    return () if installed is None else installed.reward_components


@lru_cache
def _installed_method(name: str) -> Method | None:
    try:
        return get_method(name)
    except UsageError:
        return None


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Metrics of one step, empty without rollouts. Means include flagged rollouts."""
    if not rollouts:
        return {}
    metrics = {
        "rollout/count": float(len(rollouts)),
        "rollout/score/mean": _mean([rollout.reward["score"] for rollout in rollouts]),
        "rollout/acc/mean": _mean([rollout.reward["acc"] for rollout in rollouts]),
        "rollout/unread": _mean([rollout.reward.get("unread", 0.0) for rollout in rollouts]),
    }
    by_method: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        by_method[rollout.trajectory.method].append(rollout)
    for method, members in by_method.items():
        for key in ("score", "acc", *members[0].components):
            metrics[f"video_tools/{method}/{key}/mean"] = _mean([member.reward.get(key, 0.0) for member in members])

    metrics |= _tool_metrics(rollouts)
    metrics |= _judge_metrics(rollouts)
    metrics |= _tool_model_metrics(rollouts)
    stops = Counter(rollout.trajectory.stop_reason for rollout in rollouts)
    metrics |= {f"stop/{reason}": stops[reason] / len(rollouts) for reason in StopReason}

    counts = [rollout.trajectory.counts() for rollout in rollouts]
    metrics["frames/initial/mean"] = _mean([count["initial_frames"] for count in counts])
    metrics["frames/tool/mean"] = _mean([count["tool_frames"] for count in counts])
    metrics["frames/total/mean"] = metrics["frames/initial/mean"] + metrics["frames/tool/mean"]
    metrics["tool/executed_per_rollout"] = _mean([count["executed_calls"] for count in counts])
    metrics |= _token_metrics(rollouts)
    metrics["rollout/sequences/mean"] = _mean([rollout.num_sequences for rollout in rollouts])
    metrics |= _cache_metrics(rollouts)
    metrics["invariant/violations"] = float(sum("invariant" in rollout.trajectory.flags for rollout in rollouts))
    metrics["rollout/flagged"] = float(sum(bool(rollout.trajectory.flags) for rollout in rollouts))
    if num_incomplete := sum(_has_incomplete_video(rollout.trajectory) for rollout in rollouts):
        metrics["rollout/incomplete_video"] = float(num_incomplete)
    return metrics | _group_metrics(rollouts)


def _has_incomplete_video(trajectory: Trajectory) -> bool:
    videos = (trajectory.video, *trajectory.more_videos)
    return any(video is not None and video.missing_bytes for video in videos)


def _tool_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    calls: dict[str, list[CallRecord]] = defaultdict(list)
    errors: Counter[str] = Counter()
    for rollout in rollouts:
        for call in rollout.trajectory.calls():
            calls[_tool_name(call.name, rollout.trajectory)].append(call)
            if call.error is not None:
                errors[call.error.code] += 1
    for name, members in calls.items():
        metrics[f"tool/{name}/calls_per_rollout"] = len(members) / len(rollouts)
        metrics[f"tool/{name}/success_rate"] = _mean([call.ok for call in members])
        latencies_ms = [call.latency_ms for call in members]
        metrics[f"tool/{name}/latency_ms_p50"] = float(np.percentile(latencies_ms, 50))
        metrics[f"tool/{name}/latency_ms_p95"] = float(np.percentile(latencies_ms, 95))
    metrics |= {f"tool/error/{code}": count / len(rollouts) for code, count in errors.items()}
    return metrics


def _tool_name(name: str, trajectory: Trajectory) -> str:
    """A tool's name, or "unknown" for a name that the policy made up, because loggers keep every metric for good."""
    if trajectory.provenance is not None:
        return name if name in trajectory.provenance.get("tools", ()) else "unknown"
    method = _installed_method(trajectory.method)
    if trajectory.visuals != "video":  # there are no tools
        return "unknown"
    if method is None or trajectory.video is None:
        return name
    try:
        method = method_of_rollout(method, trajectory.settings)
    except UsageError:
        return name  # recorded by another version
    return name if name in method.tools(trajectory.video) else "unknown"


def _token_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    counts_of = {
        "generated": [rollout.num_generated_tokens for rollout in rollouts],
        "observation": [rollout.num_observation_tokens for rollout in rollouts],
        "prompt": [rollout.num_prompt_tokens for rollout in rollouts],
    }
    recorded = {origin: [count for count in counts if count is not None] for origin, counts in counts_of.items()}
    metrics = {f"tokens/{origin}/mean": _mean(counts) for origin, counts in recorded.items() if counts}
    cached = [rollout.num_cached_tokens for rollout in rollouts if rollout.num_cached_tokens is not None]
    return metrics | ({"prefix/cached_tokens": _mean(cached)} if cached else {})


def _cache_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    uses = [rollout.trajectory.cache for rollout in rollouts]
    num_hits, num_misses = sum(use.hits for use in uses), sum(use.misses for use in uses)
    return {
        "cache/hit_rate": num_hits / max(1, num_hits + num_misses),
        "cache/bytes": float(max(use.stored_bytes for use in uses)),  # of the fullest, because each process has a cache
    }


def _judge_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Sums over the step; empty if no rollout answered an open question."""

    def values(key: str) -> list[float]:
        return [rollout.reward.get(key, 0.0) for rollout in rollouts]

    if not any(values("judge_calls") + values("judge_skipped")):
        return {}
    latencies_ms = [latency_ms for latency_ms in values("judge_latency_ms") if latency_ms > 0.0]
    return {
        "judge/calls": sum(values("judge_calls")),
        "judge/failures": sum(values("judge_failed")),
        "judge/failed_attempt_rate": sum(values("judge_failed_attempts")) / max(1.0, sum(values("judge_attempts"))),
        "judge/cache_hits": sum(values("judge_cache_hits")),
        "judge/decided_by_rule": sum(values("judge_skipped")),
        "judge/latency_ms_p50": float(np.percentile(latencies_ms, 50)) if latencies_ms else 0.0,
    }


def _tool_model_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Sums over the step; empty if no tool asked a model."""
    exchanges = [
        exchange for rollout in rollouts for call in rollout.trajectory.calls() for exchange in call.model_calls
    ]
    if not exchanges:
        return {}
    latencies_ms = [exchange.latency_ms for exchange in exchanges if exchange.reply is not None]
    return {
        "tool_model/calls": float(len(exchanges)),
        "tool_model/failures": float(sum(exchange.reply is None for exchange in exchanges)),
        "tool_model/prompt_tokens": float(sum(exchange.prompt_tokens for exchange in exchanges)),
        "tool_model/completion_tokens": float(sum(exchange.completion_tokens for exchange in exchanges)),
        "tool_model/latency_ms_p50": float(np.percentile(latencies_ms, 50)) if latencies_ms else 0.0,
    }


def _group_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Share of groups whose valid rollouts differ in score, because only these change the policy. Empty if every group
    has one rollout, as in most validations."""
    scores: dict[str, set[float]] = defaultdict(set)
    for rollout in rollouts:
        scores[rollout.uid] |= set() if rollout.trajectory.flags else {rollout.reward["score"]}
    if len(scores) == len(rollouts):
        return {}
    return {"group/unequal_reward_rate": _mean([len(values) > 1 for values in scores.values()])}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
