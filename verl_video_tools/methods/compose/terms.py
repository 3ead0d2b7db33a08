"""Reward terms, each a number that is read from a rollout's record. A new term is one entry of `TERMS`.

A term is a dataclass whose fields are its keys in the list `reward`, beside `name`, `key`, `weight`, `gate` and
`gate_from`, which every term has (`compose.reward`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_video_tools.core.temporal import boundary_agreement, segments_iou, segments_recall
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.grammar import Grammar
from verl_video_tools.methods.framethinker.consistency import ConsistencyRules, verify_consistency
from verl_video_tools.methods.videobrain.method import Outcomes, VideoBrain

_MODULE = "verl_video_tools.methods.compose.terms"
_GROUP = "verl_video_tools.methods.compose.group_terms"

TERMS = {
    "accuracy": f"{_MODULE}:Accuracy",
    "format": f"{_MODULE}:Format",
    "tool": f"{_MODULE}:ToolUse",
    "turns": f"{_MODULE}:Turns",
    "calls": f"{_MODULE}:Calls",
    "temporal_iou": f"{_MODULE}:TemporalOverlap",
    "behavior": f"{_MODULE}:Behavior",
    "ccv": f"{_MODULE}:Consistency",
    "curiosity": f"{_GROUP}:Curiosity",
    "diversity": f"{_GROUP}:Diversity",
    "relative_length": f"{_GROUP}:RelativeLength",
    "tool_necessity": f"{_GROUP}:ToolNecessity",
}
"""Python paths of terms by name."""

Segment = tuple[float, float]


@dataclass
class Scored:
    """A rollout that is scored, its row, and what several terms ask of it.

    Attributes:
        parameters: names of the arguments that each tool takes. What else a policy writes into a call is read by no
            tool, and must earn nothing.
    """

    trajectory: vt.Trajectory
    sample: vt.Sample
    judge: vt.Judge | None
    grammar: Grammar
    parameters: Mapping[str, Collection[str]]
    _score: float | None = field(default=None, init=False)

    async def answer_score(self) -> float:
        """`vt.answer_score` of the rollout's answer. A judge is asked once, whatever number of terms ask.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        if self._score is None:
            self._score = await vt.answer_score(self.trajectory.answer, self.sample, self.judge)
        return self._score

    def taken(self, call: vt.CallRecord) -> dict[str, Any]:
        """The arguments of an executed call that its tool takes, without those that are null, which means left out."""
        known = self.parameters.get(call.name, ())
        return {name: value for name, value in call.arguments.items() if name in known and value is not None}

    def carried_out(self, call: vt.CallRecord) -> dict[str, Any]:
        """What an executed call says, by its arguments: as its result repeats them, else as they were written."""
        known = self.parameters.get(call.name, ())
        return self.taken(call) | {name: value for name, value in call.result.items() if name in known}


@dataclass(frozen=True, kw_only=True)
class AnyTerm(ABC):  # noqa: B024 (its two kinds say what they work out)
    """What is common to terms of a single rollout and of a group (`compose.group_terms`)."""

    def tools_fault(self, tools: Sequence[str]) -> str | None:
        """Why the term makes no sense beside these tools; None where it does."""
        return None

    def check_earnable(self, sample: vt.Sample, judge: object | None) -> None:  # noqa: B027 (most ask nothing more)
        """As `Method.check_earnable`, for what this term needs of a row.

        Raises:
            UsageError: the row lacks it.
        """


@dataclass(frozen=True, kw_only=True)
class Term(AnyTerm):
    """A part of the reward of a single rollout, before its weight and gates."""

    @abstractmethod
    async def value(self, rollout: Scored) -> float:
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
        max_answer_characters: an answer of this length or longer earns nothing: it would be a list of guesses.
        segments_by_iou: an answer to a question of type `segment` is a list of two numbers, and earns its overlap with
            the truth.
    """

    right_from: float | None = None
    max_answer_characters: int | None = None
    segments_by_iou: bool = False

    def __post_init__(self) -> None:
        bound = self.right_from
        vt.require(self, "right_from", bound is None or 0.0 < bound <= 1.0, "above 0, at most 1, or null")
        limit = self.max_answer_characters
        vt.require(self, "max_answer_characters", limit is None or limit >= 1, "at least 1, or null")

    async def value(self, rollout: Scored) -> float:
        answer, sample = rollout.trajectory.answer or "", rollout.sample
        if not answer or (self.max_answer_characters is not None and len(answer) >= self.max_answer_characters):
            return 0.0
        if self.segments_by_iou and sample.question_type == "segment":
            named, truth = vt.segment_of(answer), vt.segment_of(sample.ground_truth)
            return 0.0 if named is None or truth is None else vt.temporal_iou(named, truth)
        score = await rollout.answer_score()
        return score if self.right_from is None else float(score >= self.right_from)


@dataclass(frozen=True, kw_only=True)
class Format(Term):
    """Whether a rollout keeps the form of its grammar.

    Attributes:
        valid, invalid: what one that does earns, and one that does not.
        refused_calls: whether a rollout may have calls that were refused; calls that failed through no fault of the
            policy, or found nothing, are always allowed.
        repeated_calls: whether it may carry out the same call twice.
        max_answer_characters: an answer of this length or longer is invalid.
    """

    valid: float = 1.0
    invalid: float = 0.0
    refused_calls: bool = True
    repeated_calls: bool = True
    max_answer_characters: int | None = None

    async def value(self, rollout: Scored) -> float:
        return self.valid if self._is_valid(rollout) else self.invalid

    def _is_valid(self, rollout: Scored) -> bool:
        trajectory, limit = rollout.trajectory, self.max_answer_characters
        if limit is not None and len(trajectory.answer or "") >= limit:
            return False
        if not self.refused_calls and any(call.refused() for call in trajectory.calls()):
            return False
        said = [(call.name, rollout.carried_out(call)) for call in trajectory.executed_calls()]
        if not self.repeated_calls and any(call in said[:place] for place, call in enumerate(said)):
            return False
        return rollout.grammar.is_in_form(trajectory)


@dataclass(frozen=True, kw_only=True)
class ToolUse(Term):
    """What was done with tools, from executed calls; using one often earns no more than using it once.

    Attributes:
        tools: names of those that count; empty: all.
        pays: what a rollout earns that used one of them, two, and so on; the last number holds for more.
        min_frames: different frames that a call must have shown.
    """

    tools: tuple[str, ...] = ()
    pays: tuple[float, ...] = (1.0,)
    min_frames: int = 0

    def __post_init__(self) -> None:
        vt.require(self, "pays", len(self.pays) > 0, "at least one number")
        vt.require(self, "min_frames", self.min_frames >= 0, "at least 0")

    async def value(self, rollout: Scored) -> float:
        used = {
            call.name
            for call in rollout.trajectory.executed_calls()
            if (not self.tools or call.name in self.tools) and len(_indices_shown(call)) >= self.min_frames
        }
        return self.pays[min(len(used), len(self.pays)) - 1] if used else 0.0

    def tools_fault(self, tools: Sequence[str]) -> str | None:
        return unknown_tools(self.tools, tools)


@dataclass(frozen=True, kw_only=True)
class Turns(Term):
    """Whether a rollout has so many assistant turns, or how many it has.

    Attributes:
        min_turns: turns, the answer's included, from which it earns 1.
        per_turn: above 0, what each turn after the first earns instead.
        cap: upper bound of that.
    """

    min_turns: int = 2
    per_turn: float = 0.0
    cap: float = 1.0

    async def value(self, rollout: Scored) -> float:
        num_turns = len(rollout.trajectory.turns)
        if self.per_turn > 0.0:
            return min(self.per_turn * max(0, num_turns - 1), self.cap)
        return float(num_turns >= self.min_turns)


@dataclass(frozen=True, kw_only=True)
class Calls(Term):
    """The number of executed calls; with a weight below 0 their price.

    Attributes:
        tools: names of those that count; empty: all.
    """

    tools: tuple[str, ...] = ()

    async def value(self, rollout: Scored) -> float:
        names = [call.name for call in rollout.trajectory.executed_calls()]
        return float(sum(not self.tools or name in self.tools for name in names))

    def tools_fault(self, tools: Sequence[str]) -> str | None:
        return unknown_tools(self.tools, tools)


@dataclass(frozen=True, kw_only=True)
class TemporalOverlap(Term):
    """How well executed calls meet the row's annotated segment; 0 for a row without one.

    Attributes:
        tools: names of those whose segments count; empty: all that take one.
        calls: the `last` call, the one that earns most (`best`), or all of them as one cover (`union`).
        measure: intersection over union (`iou`); the share of the truth that was covered (`recall`); `iou` times the
            agreement of both ends (`boundary`).
        segment_questions: also paid where the answer itself is a segment.
    """

    tools: tuple[str, ...] = ()
    calls: Literal["last", "best", "union"] = "last"
    measure: Literal["iou", "recall", "boundary"] = "iou"
    segment_questions: bool = False

    async def value(self, rollout: Scored) -> float:
        truth, info = rollout.sample.video_segment_seconds, rollout.trajectory.video
        if rollout.sample.question_type == "segment" and not self.segment_questions:
            return 0.0
        if truth is None or info is None:
            return 0.0
        segments = [
            segment
            for call in rollout.trajectory.executed_calls()
            if (not self.tools or call.name in self.tools)
            and (segment := segment_of_facts({**rollout.taken(call), **call.result}, info)) is not None
        ]
        if not segments:
            return 0.0
        if self.calls == "union":
            return self._overlap(segments, truth, info)
        counted = segments[-1:] if self.calls == "last" else segments
        return max(self._overlap([segment], truth, info) for segment in counted)

    def _overlap(self, segments: Sequence[Segment], truth: Segment, info: vt.VideoInfo) -> float:
        if self.measure == "recall":
            return segments_recall(segments, truth)
        iou = segments_iou(segments, truth)
        if self.measure == "boundary":
            hull = min(start for start, _ in segments), max(end for _, end in segments)
            return iou * boundary_agreement(hull, truth, info.duration_seconds)
        return iou

    def tools_fault(self, tools: Sequence[str]) -> str | None:
        return unknown_tools(self.tools, tools)


@dataclass(frozen=True, kw_only=True)
class Behavior(Term):
    """What VideoBrain pays for how a rollout went, by the class of its question (`extra_info.classification`): right
    without a call, right with calls, wrong without a call, wrong with calls.

    Attributes:
        direct: on questions that the initial frames answer.
        adaptive: on those for which calls may help.
        active: on those that need calls.
        right_from: score of an answer from which it is right.
    """

    direct: Outcomes = (0.5, 0.0, 0.0, 0.0)
    adaptive: Outcomes = (0.5, 0.5, 0.0, 0.0)
    active: Outcomes = (0.0, 0.5, 0.0, 0.2)
    right_from: float = 1.0

    def _method(self) -> VideoBrain:
        return VideoBrain(
            direct_behavior=self.direct,
            adaptive_behavior=self.adaptive,
            active_behavior=self.active,
            right_from=self.right_from,
        )

    def __post_init__(self) -> None:
        self._method()  # checks the fields

    async def value(self, rollout: Scored) -> float:
        is_right = await rollout.answer_score() >= self.right_from
        return self._method().behavior(rollout.sample, is_right, bool(rollout.trajectory.executed_calls()))

    def check_earnable(self, sample: vt.Sample, judge: object | None) -> None:
        self._method().check_earnable(sample, judge)


@dataclass(frozen=True, kw_only=True)
class Consistency(Term):
    """1 where FrameThinker's Cognitive Consistency Verification passes (`methods.framethinker.consistency`).

    Attributes:
        min_gap: frames; a segment needs end - start > min_gap.
    """

    min_gap: int = 8

    async def value(self, rollout: Scored) -> float:
        info = rollout.trajectory.video
        assert info is not None  # a rollout without one is lost
        rules = ConsistencyRules.training(self.min_gap, info.num_frames)
        return float(verify_consistency(rollout.trajectory.turns, rules).ok)

    def tools_fault(self, tools: Sequence[str]) -> str | None:
        if strange := set(tools) - {"choose_frames", "get_frame_number"}:
            return f"knows choose_frames and get_frame_number alone, and there is {', '.join(sorted(strange))}"
        return None


_SECONDS_KEYS = (("start_time", "end_time"), ("t_start", "t_end"))


def segment_of_facts(facts: Mapping[str, Any], info: vt.VideoInfo) -> Segment | None:
    """The segment in seconds that an executed call was about; None where it names none by two finite numbers.

    Frame numbers become times by the video's average rate in records whose results hold no times of their range.

    Args:
        facts: what was carried out, the call's result, and its arguments where the result is silent.
    """
    for first, last in _SECONDS_KEYS:
        if (segment := _two_numbers(facts.get(first), facts.get(last))) is not None:
            return segment
    both = facts.get("segment")
    if isinstance(both, list | tuple) and len(both) == 2 and (segment := _two_numbers(*both)) is not None:
        return segment
    frames = _two_numbers(facts.get("start_frame"), facts.get("end_frame"))
    return None if frames is None else (frames[0] / info.average_fps, frames[1] / info.average_fps)


def _two_numbers(first: Any, last: Any) -> tuple[float, float] | None:
    start, end = (vt.finite_number(value, read_text=True) for value in (first, last))
    return None if start is None or end is None else (start, end)


def _indices_shown(call: vt.CallRecord) -> set[int]:
    """Numbers of the frames that a call showed, those of a grid one by one."""
    return {shown.index for frame in call.frames for shown in frame.single_frames}


def unknown_tools(named: Sequence[str], tools: Sequence[str]) -> str | None:
    """`Term.tools_fault` of a term that names tools."""
    if strange := [name for name in named if name not in tools]:
        return f"names {', '.join(strange)}; the composition's tools are: {', '.join(tools) or 'none'}"
    return None
