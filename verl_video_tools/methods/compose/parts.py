"""The parts that a composition names: which frames come first, and what a rollout earns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind.method import FrameMind, Rung
from verl_video_tools.methods.longvt.grammar import is_well_formed

PLANS = {"uniform": f"{__name__}:Uniform", "ladder": f"{__name__}:Ladder"}
"""Python paths of plans of the initial frames by name."""


@dataclass(frozen=True, kw_only=True)
class FramePlan(ABC):
    """The frames that are shown with the question."""

    @abstractmethod
    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        """The request for the initial frames of a video. `rung` and `num_rungs` are those of `Compose`."""


@dataclass(frozen=True, kw_only=True)
class Uniform(FramePlan):
    """Frames spread evenly from the first of the video to the last.

    Attributes:
        num_frames: number of frames; a shorter video shows all of its frames.
        min_pixels, max_pixels: bounds on the area of a frame in pixels.
    """

    num_frames: int
    min_pixels: int
    max_pixels: int

    def __post_init__(self) -> None:
        vt.require_at_least(self, 1, "num_frames")
        vt.require(self, "max_pixels", self.max_pixels >= self.min_pixels, f"at least min_pixels, {self.min_pixels}")

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        size = vt.frame_size(info, self.min_pixels, self.max_pixels, envelope)
        return vt.spread_frames(info, self.num_frames, size)


@dataclass(frozen=True, kw_only=True)
class Ladder(FramePlan):
    """FrameMind's ladder: the rollouts of a group see different numbers of frames, from many small ones to few large
    ones. Without a rung, as in validation, there are as many frames as on the first rung.

    Attributes:
        low, high: first and last rung, as the number of frames and the side in pixels of the square that each frame
            is scaled to.
    """

    low: Rung = (64, 224)
    high: Rung = (32, 448)

    def __post_init__(self) -> None:
        FrameMind(low=self.low, high=self.high)  # checks the fields

    def request(
        self, info: vt.VideoInfo, envelope: vt.PixelEnvelope, rung: int | None, num_rungs: int
    ) -> vt.FrameRequest:
        framemind = FrameMind(low=self.low, high=self.high, rung=rung, num_rungs=num_rungs)
        return framemind.plan_initial_frames(info, vt.Sample("", "", "", "mc"), envelope)


# --------------------------------------------------------------------------------------------------------------- reward
# Terms with weights, and gates by which one term decides on others.

TERMS = {
    "accuracy": f"{__name__}:Accuracy",
    "format": f"{__name__}:Format",
    "tool": f"{__name__}:ToolUse",
    "calls": f"{__name__}:Calls",
    "temporal_iou": f"{__name__}:TemporalOverlap",
}
"""Python paths of terms by name."""


@dataclass(frozen=True)
class ScoringContext:
    """A rollout that is scored, and further values that terms read.

    Attributes:
        parameters: names of the arguments that each tool takes. A tool reads nothing else that a policy writes into a
            call, so nothing else may change a reward.
    """

    trajectory: vt.Trajectory
    sample: vt.Sample
    judge: vt.Judge | None
    parameters: Mapping[str, Collection[str]]

    def executed_calls(self, tools: Collection[str] = ()) -> list[vt.CallRecord]:
        """Executed calls of these tools, or of all tools if none is named."""
        return [call for call in self.trajectory.executed_calls() if not tools or call.name in tools]


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """A part of the reward. Its fields, those of the subclass included, are the keys of its entry in the file.

    Attributes:
        key: name in records and metrics; the file may leave it out, and it is the entry's `name` then.
        weight: factor of the term's value. A term of weight 0 is recorded at its value and not added to the score.
        gate: keys of terms further down in the file that this one decides on; `all`: all of them.
        gate_from: value of this term from which the gated ones are paid in full, and below it not at all. None: they
            are multiplied by the value, cut to 0 to 1.
    """

    key: str
    weight: float = 1.0
    gate: tuple[str, ...] | Literal["all"] = ()
    gate_from: float | None = None

    @abstractmethod
    async def value(self, rollout: ScoringContext) -> float:
        """The value that the rollout earns, before weight and gates.

        Raises:
            JudgeError: the judge gave no verdict.
        """

    def gate_factor(self, value: float) -> float:
        """The factor by which the gated terms are multiplied."""
        if self.gate_from is not None:
            return float(value >= self.gate_from)
        return min(max(value, 0.0), 1.0)


async def components(terms: Sequence[Term], rollout: ScoringContext) -> dict[str, float]:
    """The value of each term, after gates and weight. A term that a gate holds at 0 is not computed: it asks no judge.

    Raises:
        JudgeError: the judge gave no verdict.
    """
    factors = {term.key: 1.0 for term in terms}
    earned: dict[str, float] = {}
    for number, term in enumerate(terms):
        factor = factors[term.key]
        value = factor * await term.value(rollout) if factor else 0.0
        earned[term.key] = value * (term.weight or 1.0) + 0.0  # + 0.0: a weight below 0 makes no -0.0
        for key in [below.key for below in terms[number + 1 :]] if term.gate == "all" else term.gate:
            factors[key] *= term.gate_factor(value)
    return earned


@dataclass(frozen=True, kw_only=True)
class Accuracy(Term):
    """How right the answer is, from 0 to 1."""

    async def value(self, rollout: ScoringContext) -> float:
        answer = rollout.trajectory.answer
        return await vt.answer_score(answer, rollout.sample, rollout.judge) if answer else 0.0


@dataclass(frozen=True, kw_only=True)
class Format(Term):
    """1 for a rollout in LongVT's format: one call in every turn but the last; an answer at once has no words around
    its blocks.

    Attributes:
        refused_calls: whether a rollout may have calls that were refused. Calls that failed through no fault of the
            policy, or found nothing, are always allowed.
        repeated_calls: whether it may execute the same call twice.
    """

    refused_calls: bool = True
    repeated_calls: bool = True

    async def value(self, rollout: ScoringContext) -> float:
        if not self.refused_calls and any(call.refused() for call in rollout.trajectory.calls()):
            return 0.0
        if not self.repeated_calls and _repeats_a_call(rollout):
            return 0.0
        return float(is_well_formed(rollout.trajectory))


def _repeats_a_call(rollout: ScoringContext) -> bool:
    """Whether two executed calls have the same arguments: as their results repeat them, else as they were written."""
    seen: list[tuple[str, dict[str, Any]]] = []
    for call in rollout.executed_calls():
        parameters_of_tool = rollout.parameters.get(call.name, ())
        written = {
            key: value for key, value in call.arguments.items() if key in parameters_of_tool and value is not None
        }
        executed = {key: value for key, value in call.result.items() if key in parameters_of_tool}
        if (call.name, written | executed) in seen:
            return True
        seen.append((call.name, written | executed))
    return False


@dataclass(frozen=True, kw_only=True)
class ToolUse(Term):
    """The value is 1 for a rollout with an executed call. Further calls earn no more.

    Attributes:
        tools: names of those that count; empty: all.
        min_frames: number of different frames that the call must have shown.
    """

    tools: tuple[str, ...] = ()
    min_frames: int = 0

    async def value(self, rollout: ScoringContext) -> float:
        shown = [{frame.index for frame in call.frames} for call in rollout.executed_calls(self.tools)]
        return float(any(len(indices) >= self.min_frames for indices in shown))


@dataclass(frozen=True, kw_only=True)
class Calls(Term):
    """The number of executed calls. With a weight below 0 each call has a price."""

    async def value(self, rollout: ScoringContext) -> float:
        return float(len(rollout.executed_calls()))


@dataclass(frozen=True, kw_only=True)
class TemporalOverlap(Term):
    """Intersection over union of the best executed call with the row's annotated segment. The value is 0 for a row
    without a segment, and for a question whose answer is a segment.

    Attributes:
        tools: names of those whose calls count; empty: all.
    """

    tools: tuple[str, ...] = ()

    async def value(self, rollout: ScoringContext) -> float:
        truth = rollout.sample.video_segment_seconds
        if truth is None or rollout.sample.question_type == "segment":
            return 0.0
        segments = [_segment_of(call) for call in rollout.executed_calls(self.tools)]
        return max((vt.temporal_iou(segment, truth) for segment in segments), default=0.0)


def _segment_of(call: vt.CallRecord) -> tuple[float, float]:
    """The segment of an executed call in seconds: that of its result, otherwise from the first frame shown to the
    last."""
    if "start_time" in call.result:
        return call.result["start_time"], call.result["end_time"]
    times = [frame.timestamp_seconds for frame in call.frames]
    return (min(times), max(times)) if times else (0.0, 0.0)
