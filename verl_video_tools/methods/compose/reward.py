"""The reward of a composition: terms with weights, and gates by which one term decides on others.

A term is a dataclass whose fields are its keys in the list `reward`, beside `name` and the keys of `RewardTerm`. A term
reads a single rollout's record (`Term`), or compares the rollouts of a group (`GroupTerm`). The terms of a group are
worked out last, so a term of a single rollout may gate one of them, and not the other way round.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from inspect import iscoroutinefunction
from typing import Any, Literal

from verl_video_tools.core.resolve import resolve
from verl_video_tools.core.temporal import segments_iou
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.grammar import Grammar
from verl_video_tools.methods.compose.parts import build, located, named, without

TERMS = {
    "accuracy": f"{__name__}:Accuracy",
    "format": f"{__name__}:Format",
    "tool": f"{__name__}:ToolUse",
    "calls": f"{__name__}:Calls",
    "temporal_iou": f"{__name__}:TemporalOverlap",
    "curiosity": f"{__name__}:Curiosity",
    "diversity": f"{__name__}:Diversity",
    "relative_length": f"{__name__}:RelativeLength",
    "tool_necessity": f"{__name__}:ToolNecessity",
}
"""Python paths of terms by name. A new term is one entry."""

Segment = tuple[float, float]


# -------------------------------------------------------------------------------------------- terms of a single rollout


@dataclass
class ScoringContext:
    """A rollout that is scored, with its row, and what several terms need.

    Attributes:
        parameters: names of the arguments that each tool takes. No tool reads anything else that a policy writes into a
            call, so it must earn nothing.
    """

    trajectory: vt.Trajectory
    sample: vt.Sample
    judge: vt.Judge | None
    grammar: Grammar
    parameters: Mapping[str, Collection[str]]
    _score: float | None = field(default=None, init=False)

    async def answer_score(self) -> float:
        """`vt.answer_score` of the rollout's answer. However many terms need it, a judge grades the answer once.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        if self._score is None:
            self._score = await vt.answer_score(self.trajectory.answer, self.sample, self.judge)
        return self._score

    def executed_calls(self, tools: Collection[str]) -> list[vt.CallRecord]:
        """Executed calls of these tools, or of all tools where none is named."""
        return [call for call in self.trajectory.executed_calls() if not tools or call.name in tools]

    def known_arguments(self, call: vt.CallRecord) -> dict[str, Any]:
        """The arguments of a call that its tool takes. Null means that an argument was left out."""
        known = self.parameters.get(call.name, ())
        return {name: value for name, value in call.arguments.items() if name in known and value is not None}


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """A part of the reward of a single rollout, before its weight and gates."""

    @abstractmethod
    async def value(self, rollout: ScoringContext) -> float:
        """What the rollout earns.

        Raises:
            JudgeError: the judge gave no verdict.
        """


@dataclass(frozen=True, kw_only=True)
class Accuracy(Term):
    """How right the answer is, from 0 to 1.

    Attributes:
        right_from: score from which an answer is right and earns 1, and below it nothing; null: the score itself, so
            that a partly right one earns a part.
    """

    right_from: float | None = None

    def __post_init__(self) -> None:
        bound = self.right_from
        vt.require(self, "right_from", bound is None or 0.0 < bound <= 1.0, "above 0, at most 1, or null")

    async def value(self, rollout: ScoringContext) -> float:
        if not rollout.trajectory.answer:
            return 0.0
        score = await rollout.answer_score()
        return score if self.right_from is None else float(score >= self.right_from)


@dataclass(frozen=True, kw_only=True)
class Format(Term):
    """1 for a rollout that keeps the form of its grammar.

    Attributes:
        refused_calls: whether a rollout may have calls that were refused; calls that failed through no fault of the
            policy, or found nothing, are always allowed.
        repeated_calls: whether it may carry out the same call twice.
    """

    refused_calls: bool = True
    repeated_calls: bool = True

    async def value(self, rollout: ScoringContext) -> float:
        if not self.refused_calls and any(call.refused() for call in rollout.trajectory.calls()):
            return 0.0
        if not self.repeated_calls and _repeats_a_call(rollout):
            return 0.0
        return float(rollout.grammar.is_in_form(rollout.trajectory))


def _repeats_a_call(rollout: ScoringContext) -> bool:
    """Whether two executed calls have the same arguments: as their results repeat them, else as they were written."""
    seen: list[tuple[str, dict[str, Any]]] = []
    for call in rollout.trajectory.executed_calls():
        known = rollout.parameters.get(call.name, ())
        arguments = rollout.known_arguments(call) | {key: call.result[key] for key in known if key in call.result}
        if (call.name, arguments) in seen:
            return True
        seen.append((call.name, arguments))
    return False


@dataclass(frozen=True, kw_only=True)
class ToolUse(Term):
    """1 for a rollout with an executed call; further calls earn no more.

    Attributes:
        tools: names of those that count; empty: all.
        min_frames: different frames that the call must have shown, those of a grid one by one.
    """

    tools: tuple[str, ...] = ()
    min_frames: int = 0

    def __post_init__(self) -> None:
        vt.require(self, "min_frames", self.min_frames >= 0, "at least 0")

    async def value(self, rollout: ScoringContext) -> float:
        shown = [
            {single.index for frame in call.frames for single in frame.single_frames}
            for call in rollout.executed_calls(self.tools)
        ]
        return float(any(len(indices) >= self.min_frames for indices in shown))


@dataclass(frozen=True, kw_only=True)
class Calls(Term):
    """The number of executed calls; with a weight below 0 their price.

    Attributes:
        tools: names of those that count; empty: all.
    """

    tools: tuple[str, ...] = ()

    async def value(self, rollout: ScoringContext) -> float:
        return float(len(rollout.executed_calls(self.tools)))


@dataclass(frozen=True, kw_only=True)
class TemporalOverlap(Term):
    """Intersection over union of executed calls with the row's annotated segment; 0 for a row without one, and for a
    question whose answer is a segment.

    Attributes:
        tools: names of those whose segments count; empty: all that take one.
        calls: the `last` call, the one that earns most (`best`), or all of them as one cover (`union`).
    """

    tools: tuple[str, ...] = ()
    calls: Literal["last", "best", "union"] = "last"

    async def value(self, rollout: ScoringContext) -> float:
        truth = rollout.sample.video_segment_seconds
        if truth is None or rollout.sample.question_type == "segment":
            return 0.0
        calls = rollout.executed_calls(self.tools)
        of_calls = [segment_of_call({**rollout.known_arguments(call), **call.result}) for call in calls]
        segments = [segment for segment in of_calls if segment is not None]
        if not segments:
            return 0.0
        if self.calls == "union":
            return segments_iou(segments, truth)
        counted = segments[-1:] if self.calls == "last" else segments
        return max(segments_iou([segment], truth) for segment in counted)


def segment_of_call(facts: Mapping[str, Any]) -> Segment | None:
    """The segment in seconds that an executed call was about; None where it does not give two finite numbers.

    Args:
        facts: the call's result, and its arguments where the result does not repeat them.
    """
    both = facts.get("segment")
    candidates = [(facts.get(first), facts.get(last)) for first, last in _SECONDS_KEYS]
    candidates += [(both[0], both[1])] if isinstance(both, list | tuple) and len(both) == 2 else []
    for values in candidates:
        start, end = (vt.finite_number(value, read_text=True) for value in values)
        if start is not None and end is not None:
            return start, end
    return None


_SECONDS_KEYS = (("start_time", "end_time"), ("t_start", "t_end"))


# --------------------------------------------------------------------------------------------------- terms of a group


@dataclass(frozen=True)
class ScoredGroup:
    """The rollouts of one question, and what each earned by itself: `score`, `acc` and all components."""

    trajectories: Sequence[vt.Trajectory]
    rewards: Sequence[Mapping[str, float]]

    def used(self, tools: Collection[str]) -> list[bool]:
        """Whether each rollout carried out a call of one of these tools, or of any where none is named."""
        return [
            any(not tools or call.name in tools for call in trajectory.executed_calls())
            for trajectory in self.trajectories
        ]


@dataclass(frozen=True, kw_only=True)
class GroupTerm(ABC):
    """A part of the reward that compares a rollout with the others of its group, before its weight and gates."""

    @abstractmethod
    def values(self, group: ScoredGroup) -> list[float]:
        """What each rollout earns, in their order; two rollouts or more."""


@dataclass(frozen=True, kw_only=True)
class Curiosity(GroupTerm):
    """To rollouts that used a tool, how far the group is from `wanted_rate`; after Pixel Reasoner.

    Attributes:
        wanted_rate: share of rollouts that use a tool, 0 to 1; from there on nobody earns anything.
        tools: names of those that count; empty: all.
    """

    wanted_rate: float = 0.3
    tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        vt.require(self, "wanted_rate", 0.0 <= self.wanted_rate <= 1.0, "0 to 1")

    def values(self, group: ScoredGroup) -> list[float]:
        return vt.curiosity_bonus(group.used(self.tools), self.wanted_rate)


@dataclass(frozen=True, kw_only=True)
class Diversity(GroupTerm):
    """How far in time a rollout's frames lie from those of its group: 1 less the mean IoU with rollouts that called.

    Attributes:
        margin_seconds: added at both ends of what a call showed, so that a call of one frame covers something.
    """

    margin_seconds: float = 0.5

    def __post_init__(self) -> None:
        vt.require(self, "margin_seconds", self.margin_seconds >= 0.0, "at least 0")

    def values(self, group: ScoredGroup) -> list[float]:
        return vt.span_diversity([vt.looked_at_spans(each, self.margin_seconds) for each in group.trajectories])


@dataclass(frozen=True, kw_only=True)
class RelativeLength(GroupTerm):
    """0 for the shortest rollout of the group, -1 for the longest, linear between; after Kimi k1.5.

    Attributes:
        of: what is counted: `characters` that the policy wrote, its `turns`, or executed `calls`.
    """

    of: Literal["characters", "turns", "calls"] = "characters"

    def values(self, group: ScoredGroup) -> list[float]:
        return vt.relative_length_penalty([self._length(each) for each in group.trajectories])

    def _length(self, trajectory: vt.Trajectory) -> int:
        match self.of:
            case "turns":
                return len(trajectory.turns)
            case "calls":
                return len(trajectory.executed_calls())
        return vt.written_characters(trajectory)


@dataclass(frozen=True, kw_only=True)
class ToolNecessity(GroupTerm):
    """To a right rollout with tools, the share of wrong ones among the rollouts of its group without tools.

    Attributes:
        tools: names of those that count; empty: all.
    """

    tools: tuple[str, ...] = ()

    def values(self, group: ScoredGroup) -> list[float]:
        return vt.tool_necessity(group.used(self.tools), [reward["acc"] >= 1.0 for reward in group.rewards])


# ---------------------------------------------------------------------------------------------------- weights and gates


@dataclass(frozen=True, kw_only=True)
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
    term: Term | GroupTerm
    weight: float = 1.0
    gate: tuple[str, ...] = ()
    gate_from: float | None = None

    def __post_init__(self) -> None:
        is_taken = self.key in ("score", "acc", "flagged")
        vt.require(self, "key", self.key.isidentifier() and not is_taken, "a word other than score, acc and flagged")
        vt.require(self, "weight", math.isfinite(self.weight), "a finite number")
        is_gate = bool(self.gate) or self.gate_from is None
        vt.require(self, "gate", is_gate, "`all`, or the keys of the terms that gate_from decides on")

    def weighted(self, value: float) -> float:
        return value * self.weight + 0.0 if self.weight else value  # + 0.0: a weight below 0 makes no -0.0

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
        return tuple(part.key for part in self.terms)

    @property
    def group_keys(self) -> tuple[str, ...]:
        """Keys of the terms that compare the rollouts of a group."""
        return tuple(part.key for part in self.terms if isinstance(part.term, GroupTerm))

    @property
    def unpaid(self) -> tuple[str, ...]:
        """Keys of the terms of weight 0."""
        return tuple(part.key for part in self.terms if not part.weight)

    def weight(self, key: str) -> float:
        return next(part.weight for part in self.terms if part.key == key)

    def with_weight(self, key: str, weight: float) -> Reward:
        return Reward(tuple(replace(part, weight=weight) if part.key == key else part for part in self.terms))

    async def components(self, rollout: ScoringContext) -> dict[str, float]:
        """The value of each term of a single rollout, after gates and weight. A term that a gate holds at 0 is not
        worked out: no judge is asked for it.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        factors = dict.fromkeys(self.keys, 1.0)
        components: dict[str, float] = {}
        for part in self.terms:
            if isinstance(part.term, Term):
                factor = factors[part.key]
                value = factor * await part.term.value(rollout) if factor else 0.0
                components[part.key] = part.weighted(value)
                for key in part.gate:
                    factors[key] *= part.factor(value)
        return components

    def group_components(self, group: ScoredGroup) -> list[dict[str, float]]:
        """The value of each group term after gates and weight, for each rollout."""
        earned: list[dict[str, float]] = [{} for _ in group.trajectories]
        for part in self.terms:
            if isinstance(part.term, GroupTerm):
                for own, reward, value in zip(earned, group.rewards, part.term.values(group), strict=True):
                    own[part.key] = part.weighted(value * self._gates_factor(part.key, reward))
        return earned

    def _gates_factor(self, key: str, reward: Mapping[str, float]) -> float:
        """The factor by which gates multiply a group term, read from what the rollout has earned by itself."""
        factor = 1.0
        for part in self.terms:
            if key in part.gate:
                # Rounded: 0.7 * 0.1 / 0.1 is more than 0.7, and a threshold would see that.
                value = round(reward[part.key] / part.weight, 12) if part.weight else reward[part.key]
                factor *= part.factor(value)
        return factor


def read_reward(entries: Sequence[Mapping[str, Any]], tools: Collection[str]) -> Reward:
    """The reward from its list in the file.

    Args:
        tools: names of the composition's tools.

    Raises:
        UsageError: an unknown term, a wrong value, a key that two terms have, or gates that go round in a circle.
    """
    keys = [entry.get("key", entry.get("name")) for entry in entries]
    if "accuracy" not in keys:
        raise vt.UsageError(
            "reward: must have a term with the key accuracy, which `acc` reports; `weight: 0` records it without paying"
        )
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise vt.UsageError(f"reward[{number}].key: two terms are called {key!r}; give one of them another `key`")
    terms = [_read_term(entry, f"reward[{number}]", keys, tools) for number, entry in enumerate(entries)]
    return Reward(tuple(_sorted(terms)))


_OWN_KEYS = ("key", "weight", "gate", "gate_from")


def _read_term(entry: Mapping[str, Any], where: str, keys: Sequence[Any], tools: Collection[str]) -> RewardTerm:
    with located(f"{where}.name"):
        name = named(entry, "name")
        part = resolve(name, TERMS, "reward term")
        if not (isinstance(part, type) and issubclass(part, Term | GroupTerm)):
            raise vt.UsageError(f"must be a subclass of Term or GroupTerm of {__name__}, got {part!r:.80}")
        if issubclass(part, Term) and not iscoroutinefunction(part.value):
            raise vt.UsageError(f"`value` of {name} must be a coroutine function: write `async def value`")
    term = build(part, without(entry, "name", *_OWN_KEYS), where)
    if unknown := [tool for tool in getattr(term, "tools", ()) if tool not in tools]:
        known = ", ".join(tools) or "none"
        raise vt.UsageError(f"{where}.tools: there is no tool {', '.join(unknown)}; the composition has: {known}")
    own: dict[str, Any] = {
        "key": name,
        "term": term,
        **{key: value for key, value in entry.items() if key in _OWN_KEYS},
    }
    others = [key for key in keys if key != own["key"]]
    if own.get("gate") == "all":
        own["gate"] = others
    reward_term: RewardTerm = build(RewardTerm, own, where)
    if unknown := [key for key in reward_term.gate if key not in others]:
        raise vt.UsageError(f"{where}.gate: there is no other term {unknown[0]!r}; choose among {', '.join(others)}")
    if reward_term.gate and isinstance(term, GroupTerm):
        raise vt.UsageError(f"{where}.gate: {name} compares a group, after all others are paid; it cannot gate one")
    return reward_term


def _sorted(terms: Sequence[RewardTerm]) -> list[RewardTerm]:
    """Each term after its gates, otherwise as in the file."""
    gates = {term.key: [gate.key for gate in terms if term.key in gate.gate] for term in terms}
    try:
        order = list(TopologicalSorter(gates).static_order())
    except CycleError as error:
        circle = ", ".join(dict.fromkeys(error.args[1]))
        raise vt.UsageError(f"reward: the gates of {circle} go round in a circle; take one of them out") from error
    return sorted(terms, key=lambda term: order.index(term.key))
