"""The verdict of a conformance run on each fault, and on the clean rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verl_video_tools.loop_check import advantages
from verl_video_tools.loop_check.checks import CHECKS, Context, Violations, trained_rows, violations
from verl_video_tools.loop_check.records import Rollout, groups_of

CLEAN = "clean"
CHECK_NAMES = (*(check.name for check in CHECKS), advantages.NAME)


@dataclass
class Verdict:
    """What became of the rollouts with one fault, or of the clean ones.

    Attributes:
        fault: its name, or `CLEAN`.
        num_rollouts: those in which the fault has changed something.
        num_failed: of these, the rollouts that engine or worker have refused.
        num_left_out: those that train no token.
        num_caught: those that break a check.
        by_check: rollouts that break each check.
        num_checked: rollouts that each check could be applied to.
        examples: what a check has found, once for each.
        flags: of the records of the rollouts that are left out, where the loop is ours.
        probs_difference: what verl logs as `training/rollout_probs_diff_mean`, over these rollouts; None if they train
            no token or were not tapped.
    """

    fault: str
    num_rollouts: int = 0
    num_failed: int = 0
    num_left_out: int = 0
    num_caught: int = 0
    by_check: Counter[str] = field(default_factory=Counter)
    num_checked: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    flags: Counter[str] = field(default_factory=Counter)
    probs_difference: float | None = None

    @property
    def num_uncaught(self) -> int:
        """Rollouts that train with the fault, and break no check."""
        return self.num_rollouts - self.num_failed - self.num_left_out - self.num_caught

    @property
    def is_good(self) -> bool:
        """A fault has been planted, and no check needs to have seen what trains nobody. Clean rows break no check."""
        if self.fault == CLEAN:
            return self.num_rollouts > 0 and self.num_caught == 0
        return self.num_rollouts > 0 and (self.num_caught > 0 or self.num_uncaught == 0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "fault": self.fault,
            "rollouts": self.num_rollouts,
            "failed": self.num_failed,
            "left_out": self.num_left_out,
            "caught": self.num_caught,
            "uncaught": self.num_uncaught,
            "by_check": dict(self.by_check),
            "checked": dict(self.num_checked),
            "examples": self.examples,
            "flags": dict(self.flags),
            "probs_difference": self.probs_difference,
            "good": self.is_good,
        }


def audit(
    rollouts: Sequence[Rollout], context: Context, see: Callable[[int, int], None] = lambda *_: None
) -> list[Verdict]:
    """A verdict on the clean rows, then one on each fault that the rows name.

    Args:
        see: is told after each group how many are done, and of how many.
    """
    verdicts: dict[str, Verdict] = {CLEAN: Verdict(CLEAN)}
    compared: dict[str, list[float]] = {}
    groups = groups_of(rollouts)
    for number, group in enumerate(groups, start=1):
        of_group = advantages.group_violations(group, context)
        for rollout in group:
            name = rollout.fault or CLEAN
            verdict = verdicts.setdefault(name, Verdict(name))
            if rollout.fault is None or rollout.is_planted:
                _judge(rollout, verdict, of_group[rollout.session_id], context)
                compared.setdefault(name, []).extend(_probs_differences(rollout))
        see(number, len(groups))
    for name, differences in compared.items():
        verdicts[name].probs_difference = float(np.mean(differences)) if differences else None
    return list(verdicts.values())


def _judge(rollout: Rollout, verdict: Verdict, of_group: Violations, context: Context) -> None:
    verdict.num_rollouts += 1
    trains = bool(trained_rows(rollout, context))
    found = dict(violations(rollout, context)) if trains and not rollout.has_failed else {}
    found[advantages.NAME] = of_group  # also of one that does not train: it may have moved its siblings'
    for name, messages in found.items():
        if messages is not None:
            verdict.num_checked[name] += 1
        if messages:
            verdict.by_check[name] += 1
            verdict.examples.setdefault(name, messages[0])
    if any(found.values()):
        verdict.num_caught += 1
    elif rollout.has_failed:
        verdict.num_failed += 1
        verdict.examples.setdefault("failed", next((row.error for row in rollout.rows if row.error), "no row"))
    elif not trains:
        verdict.num_left_out += 1
        verdict.flags.update(flag for row in rollout.rows for flag in row.flags)


def _probs_differences(rollout: Rollout) -> Iterable[float]:
    """As verl's metric: of the probabilities of trained tokens, engine's less actor's."""
    for each in rollout.trained.values():
        if each.log_probs is not None and each.actor_log_probs is not None:
            mask = np.array(each.response_mask, dtype=bool)
            engine, actor = (np.exp(np.array(values))[mask] for values in (each.log_probs, each.actor_log_probs))
            yield from np.abs(engine - actor).tolist()


def told_by_training(verdict: Verdict, clean_difference: float | None, max_probs_diff: float) -> str:
    """What a run itself shows of a fault, without this audit.

    Args:
        clean_difference: `probs_difference` of the clean rows.
        max_probs_diff: from which on an alarm tells of the difference between engine and actor.
    """
    told = []
    if verdict.num_failed:
        told.append(f"{verdict.num_failed} of {verdict.num_rollouts} rollouts fail")
    if verdict.num_left_out:
        why = ", ".join(sorted(verdict.flags))
        told.append(f"{verdict.num_left_out} of {verdict.num_rollouts} left out" + (f" ({why})" if why else ""))
    difference = verdict.probs_difference
    if difference is not None and difference > max_probs_diff:
        beside = "" if clean_difference is None else f", clean {clean_difference:.1g}"
        told.append(f"rollout_probs_diff {difference:.2g}{beside}")
    return "; ".join(told) or "nothing"


def is_good(verdicts: Iterable[Verdict]) -> bool:
    return all(verdict.is_good for verdict in verdicts)


def sentences() -> Mapping[str, str]:
    """What each check asks."""
    return {**{check.name: check.told for check in CHECKS}, advantages.NAME: advantages.TOLD}
