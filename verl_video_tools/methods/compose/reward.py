"""The reward of a composition: terms with weights, and gates by which one term decides on others.

Terms are of a single rollout (`terms.Term`), or of a group (`group_terms.GroupTerm`), which comes later: a gate may
lead from the former to the latter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from inspect import iscoroutinefunction
from typing import Any

from verl_video_tools.core.resolve import resolve
from verl_video_tools.methods.compose.group_terms import GroupTerm, ScoredGroup
from verl_video_tools.methods.compose.section import Section
from verl_video_tools.methods.compose.terms import TERMS, AnyTerm, Scored, Term

_OWN_KEYS = ("name", "key", "weight", "gate", "gate_from")


@dataclass(frozen=True)
class RewardTerm:
    """A term of a composition.

    Attributes:
        key: name in the breakdown.
        weight: factor of the term's value. A term of weight 0 is recorded at its own value, and is no part of the sum.
        gate: keys of the terms that this one decides on.
        gate_from: value of this one from which they are paid in full, and below it nothing; None: they are multiplied
            by it, within 0 and 1.
    """

    key: str
    term: AnyTerm
    weight: float
    gate: tuple[str, ...]
    gate_from: float | None

    def factor(self, value: float) -> float:
        """What the terms behind this gate are multiplied by."""
        if self.gate_from is not None:
            return float(value >= self.gate_from)
        return min(max(value, 0.0), 1.0)


@dataclass(frozen=True)
class Reward:
    """All terms, each after those that decide on it."""

    terms: tuple[RewardTerm, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(term.key for term in self.terms)

    @property
    def group_keys(self) -> tuple[str, ...]:
        """Keys of the terms that a rollout earns beside its siblings."""
        return tuple(part.key for part in self.terms if isinstance(part.term, GroupTerm))

    def unpaid(self, weights: Mapping[str, float]) -> tuple[str, ...]:
        """Keys of the terms of weight 0; `weights` as `components` takes them."""
        return tuple(term.key for term in self.terms if not weights.get(term.key, term.weight))

    def term(self, key: str) -> RewardTerm:
        return next(term for term in self.terms if term.key == key)

    async def components(self, rollout: Scored, weights: Mapping[str, float]) -> dict[str, float]:
        """The value of each term of a single rollout, after gates and weight. One that a gate holds at 0 is not worked
        out: no judge is asked for it.

        Args:
            weights: those of terms that the method's own fields set, by key.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        factors = dict.fromkeys(self.keys, 1.0)
        components: dict[str, float] = {}
        for part in self.terms:
            if not isinstance(part.term, Term):
                continue
            factor = factors[part.key]
            value = factor * await part.term.value(rollout) if factor else 0.0
            components[part.key] = _weighted(value, weights.get(part.key, part.weight))
            for key in part.gate:
                factors[key] *= part.factor(value)
        return components

    def group_components(self, group: ScoredGroup, weights: Mapping[str, float]) -> list[dict[str, float]]:
        """The value of each group term after gates and weight, for each rollout.

        Args:
            weights: as `components` takes them.
        """
        earned: list[dict[str, float]] = [{} for _ in group.trajectories]
        for part in self.terms:
            if isinstance(part.term, GroupTerm):
                weight = weights.get(part.key, part.weight)
                for own, reward, value in zip(earned, group.rewards, part.term.values(group), strict=True):
                    own[part.key] = _weighted(value * self._factor(part.key, reward, weights), weight)
        return earned

    def _factor(self, key: str, reward: Mapping[str, float], weights: Mapping[str, float]) -> float:
        """What gates leave of a group term, read from what the rollout has earned by itself."""
        factor = 1.0
        for part in self.terms:
            if key in part.gate:
                weight = weights.get(part.key, part.weight)
                # Rounded: 0.7 * 0.1 / 0.1 is more than 0.7, and a threshold would see that.
                factor *= part.factor(round(reward[part.key] / weight, 12) if weight else reward[part.key])
        return factor


def _weighted(value: float, weight: float) -> float:
    return value * weight + 0.0 if weight else value  # a sum has no minus zero, which reads oddly


def read_reward(sections: Sequence[Section], tools: Sequence[str]) -> Reward:
    """The reward from its list in the file.

    Args:
        tools: names of the composition's tools.

    Raises:
        UsageError: an unknown term, a wrong value, a key that two terms have, or gates that go round in a circle.
    """
    named = [(section, section.values.get("key", section.values.get("name"))) for section in sections]
    keys = [key for _, key in named]
    for place, (section, key) in enumerate(named):
        if key in keys[:place]:
            raise section.fault("key", f"two terms are called {key!r}; give one of them a `key` of its own")
    terms = [_read_term(section, keys, tools) for section in sections]
    return Reward(tuple(_sorted(terms, sections)))


def _read_term(section: Section, keys: Sequence[Any], tools: Sequence[str]) -> RewardTerm:
    name = section.text("name")
    try:
        found = resolve(name, TERMS, "reward term")
    except ValueError as error:
        raise section.fault("name", str(error)) from error
    if not (isinstance(found, type) and issubclass(found, Term | GroupTerm)):
        raise section.fault(
            "name", f"must be a subclass of compose.terms.Term or compose.group_terms.GroupTerm, got {found!r:.80}"
        )
    if issubclass(found, Term) and not iscoroutinefunction(found.value):
        raise section.fault("name", f"`value` of {name} must be a coroutine function: write `async def value`")
    term: AnyTerm = section.without(_OWN_KEYS).build(found)
    if fault := term.tools_fault(tools):
        raise section.fault("tools" if "tools" in section.values else "name", f"the term {name} {fault}")
    key = section.text("key", name)
    if not key.isidentifier() or key in ("score", "acc", "flagged"):
        raise section.fault("key", f"must be a word other than score, acc and flagged, got {key!r}")
    weight, gate_from = _number(section, "weight", 1.0), _number(section, "gate_from", None)
    gate = _gate(section, key, keys)
    if gate and isinstance(term, GroupTerm):
        raise section.fault(
            "gate", f"the term {name} compares the rollouts of a group, when all others are paid; it can decide on none"
        )
    if gate_from is not None and not gate:
        raise section.fault("gate_from", "means nothing without a `gate`: the keys of the terms decided on, or all")
    assert weight is not None
    return RewardTerm(key, term, weight, gate, gate_from)


def _number(section: Section, name: str, default: float | None) -> float | None:
    value = section.values.get(name, default)
    if value is None and default is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise section.fault(name, f"must be a finite number, got {value!r:.80}")
    return float(value)


def _gate(section: Section, own: str, keys: Sequence[Any]) -> tuple[str, ...]:
    given = section.values.get("gate", [])
    others = [str(key) for key in keys if key != own]
    if given == "all":
        return tuple(others)
    if not isinstance(given, list) or not all(key in others for key in given):
        raise section.fault(
            "gate", f"must be `all`, or a list of other terms' keys ({', '.join(others)}), got {given!r}"
        )
    return tuple(given)


def _sorted(terms: Sequence[RewardTerm], sections: Sequence[Section]) -> list[RewardTerm]:
    """Each term after its gates, otherwise as in the file."""
    gates: dict[str, list[str]] = {term.key: [] for term in terms}
    for term in terms:
        for key in term.gate:
            gates[key].append(term.key)
    try:
        order = list(TopologicalSorter(gates).static_order())
    except CycleError as error:
        raise sections[0].fault(
            "gate", f"the gates of {', '.join(dict.fromkeys(error.args[1]))} go round in a circle; take one of them out"
        ) from error
    return sorted(terms, key=lambda term: order.index(term.key))
