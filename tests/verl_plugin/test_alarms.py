"""Alarms on metrics: when they are reported, and what they do."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from verl_video_tools.core.errors import UsageError, VideoToolsError
from verl_video_tools.verl_plugin.alarms import RULES, Alarms


def reports(series: dict[str, list[float]], patience: int = 3, **options: Any) -> dict[int, list[str]]:
    """Steps at which alarms were reported, with their names."""
    alarms = Alarms({"patience_steps": patience, **options}, max_probs_diff=0.05)
    num_steps = len(next(iter(series.values())))
    found = {
        step: alarms.check(step, {name: values[step] for name, values in series.items()}) for step in range(num_steps)
    }
    return {step: names for step, names in found.items() if names}


CALLS, SCORE, ENTROPY = "tool/executed_per_rollout", "rollout/score/mean", "actor/entropy"
GAP, RATE = "training/rollout_probs_diff_mean", "group/unequal_reward_rate"
NAN = float("nan")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ({CALLS: [0.5, 1.2, 0.3, 0.01, 0.0, 0.01, 0.3]}, {5: ["calls_extinct"]}),
        ({CALLS: [0.0] * 9}, {}),  # a policy that never called anything has not lost it
        ({SCORE: [0.6, 0.6, 0.6, 0.5, 0.2, 0.1, 0.1]}, {5: ["reward_collapse"]}),
        ({SCORE: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.5]}, {}),
        ({ENTROPY: [0.5, 0.005, 0.004, 0.003, 0.5]}, {3: ["entropy_collapse"]}),
        ({ENTROPY: [0.5, 0.5, 0.5, 2.0, 3.0, 4.0, 0.5]}, {5: ["entropy_explosion"]}),
        ({GAP: [0.001, 0.2, 0.3, 0.0]}, {1: ["engine_gap"], 2: ["engine_gap"]}),  # at once, in every step
        ({GAP: [0.05, NAN, 0.0]}, {}),  # at the limit; not compared by verl
        ({GAP: [0.2, NAN]}, {0: ["engine_gap"]}),
        ({RATE: [0.5, 0.0, 0.04, 0.0, 0.0, 0.0, 0.0]}, {3: ["no_differences"], 6: ["no_differences"]}),
        (
            {"rollout/flagged": [4.0, 4.0, 3.0, 0.0], "rollout/count": [16.0, 16.0, 10.0, 16.0]},
            {2: ["flagged_rollouts"]},
        ),
        # At once, and again while it lasts.
        ({"stop/no_action": [0.95, 1.0, 1.0, 0.9, 0.5, 1.0]}, {0: ["no_action"], 3: ["no_action"], 5: ["no_action"]}),
        ({"stop/no_action": [0.89, 0.5]}, {}),
        ({"actor/lr": [0.0] * 9}, {}),
    ],
)
def test_when_they_are_reported(series: dict[str, list[float]], expected: dict[int, list[str]]) -> None:
    assert reports(series) == expected


def test_a_sign_that_ends_and_comes_back_is_reported_again() -> None:
    assert sorted(reports({GAP: [0.2, 0.0, 0.2]})) == [0, 2]


def test_stopping_waits_for_the_next_step(caplog: pytest.LogCaptureFixture) -> None:
    alarms = Alarms({"engine_gap": "stop"}, max_probs_diff=0.05)
    with caplog.at_level(logging.WARNING):
        alarms.check(7, {GAP: 0.2})
    assert "step 7: alarm engine_gap" in caplog.text and "0.2" in caplog.text and "max_probs_diff=0.05" in caplog.text
    with pytest.raises(VideoToolsError, match=r"step 7.*alarms\.engine_gap=stop"):
        alarms.raise_if_stopped()
    warned = Alarms({}, max_probs_diff=0.05)
    warned.check(7, {GAP: 0.2})
    warned.raise_if_stopped()


def test_off_is_off() -> None:
    assert reports({GAP: [0.2]}, engine_gap="off") == {}


@pytest.mark.parametrize(
    ("options", "named"),
    [({"reward": "warn"}, "reward=warn"), ({"engine_gap": "mail"}, "engine_gap=mail"), ({"patience_steps": 0}, "=0")],
)
def test_wrong_options_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Alarms(options, max_probs_diff=0.05)


def test_every_rule_reads_a_metric_that_is_logged() -> None:
    """Ours by `records.metrics`, the actor's and the engine's by verl; the share of flagged ones is made here."""
    assert {metric for metric, _ in RULES.values()} == {
        CALLS, SCORE, ENTROPY, GAP, RATE, "stop/no_action", "rollout/flagged_share"
    }  # fmt: skip
