"""Alarms on the metrics of a run: what has gone wrong for some steps is reported, or ends the run.

Options under `video_tools.trainer.alarms`: `<name>=off|warn|stop` for each name in `RULES` (default `warn`), and
`patience_steps` (default 5): how many steps in a row a sign has to last.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl_video_tools.core.errors import JudgeError, UsageError, VideoToolsError
from verl_video_tools.core.machine import page
from verl_video_tools.services.config import JudgeConfig

logger = logging.getLogger(__name__)

Values = Sequence[float]
"""A metric's values from the run's first step on, those of steps that did not log it left out."""


def _calls_extinct(calls: Values, patience: int, _: float) -> str | None:
    if max(calls) >= 0.1 and max(calls[-patience:]) < 0.02:
        return f"the policy has stopped calling tools: {calls[-1]:.3g} calls per rollout, {max(calls):.3g} at its best"
    return None


def _reward_collapse(scores: Values, patience: int, _: float) -> str | None:
    if len(scores) < 2 * patience:
        return None
    means = [sum(scores[i : i + patience]) / patience for i in range(len(scores) - patience + 1)]
    if max(means) > 0.05 and means[-1] < 0.5 * max(means):
        return f"the reward has collapsed: {means[-1]:.3g} on average, {max(means):.3g} at its best"
    return None


def _entropy_collapse(entropies: Values, patience: int, _: float) -> str | None:
    if max(entropies[-patience:]) < 0.01:
        return f"the policy's entropy has collapsed to {entropies[-1]:.3g} nats: it samples one answer"
    return None


def _entropy_explosion(entropies: Values, patience: int, _: float) -> str | None:
    start = sum(entropies[:patience]) / patience
    if len(entropies) >= 2 * patience and min(entropies[-patience:]) > max(1.0, 3 * start):
        return f"the policy's entropy has risen from {start:.3g} to {entropies[-1]:.3g} nats: it writes noise"
    return None


def _engine_gap(differences: Values, _: int, max_probs_diff: float) -> str | None:
    if not differences[-1] > max_probs_diff:
        return None
    return (
        f"engine and actor differ by {differences[-1]:.3g} on average in the probabilities of sampled tokens "
        f"(video_tools.trainer.max_probs_diff={max_probs_diff:g}): other weights, position ids, pixels or precision. "
        f"Its updates are not those of GRPO; see {page('debugging')}"
    )


def _flagged_rollouts(shares: Values, patience: int, _: float) -> str | None:
    if min(shares[-patience:]) > 0.2:
        return f"{shares[-1]:.0%} of the rollouts are flagged and teach the policy nothing; this log has their errors"
    return None


def _no_differences(rates: Values, patience: int, _: float) -> str | None:
    if max(rates[-patience:]) < 0.05:
        return f"rewards differ in {rates[-1]:.0%} of the groups, and the policy learns only from these"
    return None


def _no_action(shares: Values, _: int, __: float) -> str | None:
    if shares[-1] >= 0.9:
        return (
            f"{shares[-1]:.0%} of the rollouts end with neither a call nor an answer (no_action): the policy does not "
            f"write the method's grammar, and has nothing to learn from. Fine-tune it first; see {page('cold-start')}"
        )
    return None


RULES: Mapping[str, tuple[str, Callable[[Values, int, float], str | None]]] = {
    "calls_extinct": ("tool/executed_per_rollout", _calls_extinct),
    "reward_collapse": ("rollout/score/mean", _reward_collapse),
    "entropy_collapse": ("actor/entropy", _entropy_collapse),
    "entropy_explosion": ("actor/entropy", _entropy_explosion),
    "engine_gap": ("training/rollout_probs_diff_mean", _engine_gap),
    "flagged_rollouts": ("rollout/flagged_share", _flagged_rollouts),
    "no_differences": ("group/unequal_reward_rate", _no_differences),
    "no_action": ("stop/no_action", _no_action),
}
"""Each rule looks at one metric and says what is wrong, or nothing."""

_AT_ONCE = ("engine_gap", "no_action")
"""These wait for no `patience_steps`: the updates are wrong, or useless, from the first one on."""
_IN_EVERY_STEP = "engine_gap"


def _flagged_share(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Of the rollouts of a step and of groups that dynamic sampling dropped, as it does where all are flagged."""
    flagged, count = metrics.get("rollout/flagged"), metrics.get("rollout/count")
    if flagged is None or not count:
        return {}
    dropped, dropped_flagged = (metrics.get(f"rollout/{name}", 0.0) for name in ("dropped", "dropped_flagged"))
    return {"rollout/flagged_share": (flagged + dropped_flagged) / (count + dropped)}


class Alarms:
    """The alarms of one run.

    Args:
        options: see the module's docstring.
        max_probs_diff: limit of `engine_gap`.

    Raises:
        UsageError: an unknown alarm or action, or a number of steps below 1.
    """

    def __init__(self, options: Mapping[str, Any], max_probs_diff: float) -> None:
        actions = dict(options)
        self._patience = actions.pop("patience_steps", 5)
        if not isinstance(self._patience, int) or self._patience < 1:
            raise UsageError(f"video_tools.trainer.alarms.patience_steps={self._patience}: give 1 or more")
        for name, action in actions.items():
            if name not in RULES or action not in ("off", "warn", "stop"):
                raise UsageError(
                    f"video_tools.trainer.alarms.{name}={action}: known alarms are {', '.join(RULES)}, and each is "
                    "off, warn or stop (off and on need quotes in YAML)"
                )
        self._actions = {name: actions.get(name, "warn") for name in RULES}
        self._max_probs_diff = max_probs_diff
        self._history: dict[str, list[float]] = {name: [] for name, _ in RULES.values()}
        self._last_report: dict[str, int] = {}
        self._stop: str | None = None

    def check(self, step: int, metrics: Mapping[str, Any]) -> list[str]:
        """Look at the metrics of a finished step; returns the alarms that were reported now.

        An alarm that lasts is reported every `patience_steps` steps, `engine_gap` in every step.
        """
        all_metrics = {**metrics, **_flagged_share(metrics)}
        for name, values in self._history.items():
            value = float(all_metrics.get(name, math.nan))
            if not math.isnan(value):
                values.append(value)
        reported = []
        for name, (metric, rule) in RULES.items():
            values = self._history[metric]
            interval = 1 if name == _IN_EVERY_STEP else self._patience
            needed = 1 if name in _AT_ONCE else self._patience
            is_logged = not math.isnan(float(all_metrics.get(metric, math.nan)))  # verl writes NaN without a comparison
            if self._actions[name] == "off" or not is_logged or len(values) < needed:
                continue
            message = rule(values, self._patience, self._max_probs_diff)
            if message is None:
                self._last_report.pop(name, None)
            elif step - self._last_report.get(name, step - interval) >= interval:
                self._last_report[name] = step
                reported.append(name)
                self._report(name, step, message)
        return reported

    def raise_if_stopped(self) -> None:
        """Between two steps, when checkpoint and metrics of the last one are written.

        Raises:
            VideoToolsError: an alarm that is to stop the run has been reported.
        """
        if self._stop is not None:
            raise VideoToolsError(self._stop)

    def _report(self, name: str, step: int, message: str) -> None:
        logger.warning("step %s: alarm %s: %s", step, name, message)
        if self._actions[name] == "stop":
            self._stop = f"step {step}: {message}. The run ends, as video_tools.trainer.alarms.{name}=stop asks for"


_ADVICE = (
    "See the log of the reward workers; `vvt doctor --judge-base-url` checks a judge. Started again, the run goes on "
    "from its last checkpoint"
)


class JudgeWatch:
    """Counts steps in which a judge was called and gave no verdict.

    Args:
        judge: of the run; None where it has none.
    """

    def __init__(self, judge: JudgeConfig | None) -> None:
        self._judge = judge
        self._num_silent_steps = 0
        self.begin_step()

    def begin_step(self) -> None:
        self._is_called = self._has_answered = False
        self._unjudged: set[str] = set()

    def see(self, key: str, reward_info: Mapping[str, Any]) -> None:
        """One rollout of the step, by the key of one of its sequences and the breakdown of its reward. It may be seen
        twice."""
        failed = bool(reward_info.get("judge_failed"))
        if failed:
            self._unjudged.add(key.rsplit("_", 1)[0])
        is_called = failed or bool(reward_info.get("judge_calls"))
        self._is_called |= is_called
        self._has_answered |= is_called and not failed

    def end_step(self, step: int) -> None:
        """Raises JudgeError after `max_steps_without_verdict` such steps; those that call no judge do not count."""
        if self._has_answered:
            self._num_silent_steps = 0
        elif self._is_called:
            self._num_silent_steps += 1
        self._check(step, self._num_silent_steps, f"{self._num_silent_steps} steps in a row")

    def check_refills(self, step: int, num_batches: int) -> None:
        """Dynamic sampling replaces groups without a verdict by others without one: a step that never ends counts as
        the batches that it has requested.

        Raises:
            JudgeError: they are as many as steps without a verdict may be.
        """
        if self._is_called and not self._has_answered:
            during = f"{self._num_silent_steps} steps and {num_batches} batches that dynamic sampling replaced"
            self._check(step, self._num_silent_steps + num_batches, during)

    def check_failures(self, step: int, num_failures: int | None = None) -> None:
        """Raises JudgeError where any failure is to end the run (`on_failure`).

        Args:
            num_failures: default: rollouts of the step, also those of groups that dynamic sampling has dropped.
        """
        num_failures = len(self._unjudged) if num_failures is None else num_failures
        if num_failures and self._judge is not None and self._judge.on_failure == "stop":
            raise JudgeError(
                f"step {step}: the judge gave no verdict (found {num_failures} times), and "
                f"video_tools.judge.on_failure=stop. {_ADVICE}"
            )

    def _check(self, step: int, num_silent: int, during: str) -> None:
        if self._judge is not None and num_silent >= self._judge.max_steps_without_verdict:
            raise JudgeError(
                f"step {step}: the judge gave no verdict at all during {during} "
                f"(video_tools.judge.max_steps_without_verdict={self._judge.max_steps_without_verdict}). {_ADVICE}"
            )
