"""FrameMind (arXiv 2509.24008): look again by frames and clips, trained on a ladder of resolutions in every group.

The paper's code is not public. Sources named at the fields and constants: "paper" with its section; "ours" where the
paper is silent or contradicts itself, with its number in the table of the method's page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framemind import grammar
from verl_video_tools.video.resize import fit_envelope
from verl_video_tools.video.sampling import linspace_indices

Rung = tuple[int, int]
"""Number of frames, and side in pixels of the square to which each is scaled."""

TOOLS_SCORES = (0.0, 1.0, 1.2)
"""Score of a rollout that used none, one or both of the tools (paper 3.3)."""

CORRECT_FROM = 0.5
"""Least score of a correct answer. A partly correct answer therefore counts as correct (ours, gap 23: the paper calls
its judge nuanced, and its accuracy is 0 or 1)."""


def _rounded(exact: Fraction) -> int:
    """The nearest whole number; half way the larger one."""
    return math.floor(exact + Fraction(1, 2))


# ------------------------------------------------------------------------------------------------------------ the tools
# Frames are stretched to a square, whatever their aspect ratio (paper B.2; gap 7).

FRAMES_PER_SECOND = 2.0
"""Frames of a clip per second, within its bounds (ours, gap 3: the paper says "8 to 20" without a rule)."""


@dataclass(frozen=True, kw_only=True)
class FrameAt:
    """Shows the frame nearest to `t` seconds, and the later one if two are equally near. The end of the video means its
    last frame.

    Attributes:
        side_pixels: side of the square to which the frame is scaled.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = grammar.FRAME_AT
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at one moment: shows the frame nearest to a time in high resolution, then tells its time."
        ),
        parameters={
            "t": ("number", "Time in seconds from the start of the video."),
        },
    )

    side_pixels: int

    def __post_init__(self) -> None:
        vt.require_at_least(self, 1, "side_pixels")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """The frame for ``{"t": seconds}``; the result repeats the number.

        Raises:
            CallRejected: `malformed_call` or `out_of_range`.
        """
        seconds = _time_argument(arguments, "t", context.info)
        size = fit_envelope(self.side_pixels, self.side_pixels, context.envelope)
        request = vt.FrameRequest(*size, seconds=(seconds,), rounding="nearest")
        return vt.ToolPlan(frames=request, result={"t": seconds})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """One frame."""
        return vt.spread_frames(info, 1, fit_envelope(self.side_pixels, self.side_pixels, envelope))


@dataclass(frozen=True, kw_only=True)
class VideoClip:
    """Shows frames spread evenly from `t_start` to `t_end` seconds, both included (ours, gap 4), each frame once.

    No frame begins after `t_end`. An interval with fewer frames shows the frames that it has, and an interval of length
    0 shows a single frame (ours, gap 5).

    Attributes:
        min_frames, max_frames: bounds on the number of frames, which is `FRAMES_PER_SECOND` times the length.
        side_pixels: as for `FrameAt`.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = grammar.VIDEO_CLIP
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows frames spread evenly from t_start to t_end in high resolution, "
            "then lists their times in the order shown."
        ),
        parameters={
            "t_start": ("number", "Where the part starts, in seconds from the start of the video."),
            "t_end": ("number", "Where the part ends, in seconds; not before t_start, within the video."),
        },
    )

    min_frames: int
    max_frames: int
    side_pixels: int

    def __post_init__(self) -> None:
        vt.require_at_least(self, 1, "min_frames", "side_pixels")
        vt.require(self, "max_frames", self.max_frames >= self.min_frames, f"at least min_frames, {self.min_frames}")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"t_start": seconds, "t_end": seconds}``; the result repeats the numbers.

        Raises:
            CallRejected: `malformed_call`, `out_of_range` or `reversed_segment`.
        """
        start, end = (_time_argument(arguments, name, context.info) for name in ("t_start", "t_end"))
        if end < start:
            raise vt.CallRejected(vt.CallErrorCode.REVERSED_SEGMENT, f"t_end={end:g} is before t_start={start:g}")
        size, times = fit_envelope(self.side_pixels, self.side_pixels, context.envelope), self._times(start, end)
        request = vt.FrameRequest(*size, seconds=times, rounding="nearest", unique=True, within=(start, end))
        return vt.ToolPlan(frames=request, result={"t_start": start, "t_end": end})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A clip of the whole video."""
        return vt.spread_frames(info, self.max_frames, fit_envelope(self.side_pixels, self.side_pixels, envelope))

    def frame_numbers(self, start: float, end: float, info: vt.VideoInfo) -> list[int]:
        """Numbers of the frames of a clip, ascending, in a video of an even rate."""
        first, last = _number_at(start, info), _number_at(end, info)
        nearest = {_number_at(time + 0.5 / info.average_fps, info) for time in self._times(start, end)}
        return sorted({min(max(number, first), last) for number in nearest})

    def _times(self, start: float, end: float) -> tuple[float, ...]:
        """Times to ask for. Several may mean one frame: which ones do, the file alone knows where the rate varies."""
        if end == start:
            return (start,)
        count = min(max(math.floor(FRAMES_PER_SECOND * (end - start) + 0.5), self.min_frames), self.max_frames)
        return tuple(np.linspace(start, end, count).tolist())


def _time_argument(arguments: Mapping[str, Any], name: str, info: vt.VideoInfo) -> float:
    """A time within the video, in seconds; the end for one beyond it by no more than a label's rounding.

    Raises:
        CallRejected: `malformed_call` if it is no number, `out_of_range` outside the video.
    """
    seconds = vt.snap_to_end(vt.seconds_argument(arguments, name), info.duration_seconds)
    if not 0 <= seconds <= info.duration_seconds:
        raise vt.CallRejected(
            vt.CallErrorCode.OUT_OF_RANGE,
            f"{name}={seconds:g} is outside the video, from 0 to {vt.format_seconds(info.duration_seconds)} seconds",
        )
    return seconds


def _number_at(seconds: float, info: vt.VideoInfo) -> int:
    """Number of the frame on screen at a time, in a video of an even rate; a millionth of a frame is float error."""
    return min(math.floor(seconds * info.average_fps + 1e-6), info.num_frames - 1)


# ----------------------------------------------------------------------------------------------------------- the method


def resolution_ladder(group_size: int, low: Rung = (64, 224), high: Rung = (32, 448)) -> list[Rung]:
    """The rungs of a group, from many small frames to few large ones, linear in both (paper eq. 2 and 3).

    A group of one has only the low rung.

    Args:
        group_size: number of rungs, one for each rollout of a group.
        low: first rung; the default is the paper's (4.1).
        high: last rung; the default is the paper's, too.

    Raises:
        ValueError: group_size < 1.
    """
    if group_size < 1:
        raise ValueError(f"a ladder has at least 1 rung, got group_size={group_size}")
    shares = [Fraction(number, max(1, group_size - 1)) for number in range(group_size)]
    return [
        (_rounded(low[0] + share * (high[0] - low[0])), _rounded(low[1] + share * (high[1] - low[1])))
        for share in shares
    ]


@dataclass(frozen=True, kw_only=True)
class FrameMind(vt.Method):
    """FrameMind's protocol, tools, prompt, ladder and reward. The defaults follow the paper's main text."""

    name: ClassVar[str] = "framemind"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "format", "tool", "turn")
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(
        prompt_tokens=12_288, response_tokens=16_384, images=128
    )
    oracle: ClassVar[str | None] = "verl_video_tools.methods.framemind.oracle:FrameMindOracle"
    tool_descriptions: ClassVar[tuple[vt.ToolDescription, ...]] = (FrameAt.description, VideoClip.description)
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:windows_in_seconds"

    max_turns: int = 3
    """Largest number of assistant turns, including the answer (paper 3.2, table E1)."""
    end_on_call_error: bool = False
    """False: a bad call is answered with an error, and the model may try again (paper B.2)."""
    continue_on: Literal["either", "turn_sum", "tool_call"] = "either"
    """What a turn without an answer needs for another turn to follow: `either` a summary or a call (ours, gap 11), a
    summary (paper B.1), or a call (paper 3.2). Calls of a turn that ends the rollout are not executed."""
    max_calls_per_turn: int = 2
    """Number of calls of one turn that are executed; further calls are refused with `multiple_calls` (ours, gap 2)."""
    context: Literal["append", "last_evidence", "initial_plus_last"] = "append"
    """Frames that later turns see (gap 10). `append`: all frames, with one training sequence per rollout (paper E.1).
    `last_evidence`: those of the last observation (paper eq. 1). `initial_plus_last`: these and the initial frames."""

    # ---- the ladder
    low: Rung = (64, 224)
    """First rung: number of frames, and their side in pixels (paper 4.1)."""
    high: Rung = (32, 448)
    """Last rung (paper 4.1). Set it to `low` for a group without a ladder."""
    num_rungs: int = 8
    """Number of rungs of the ladder. A training group sets it to its own size (table E1: 8)."""
    rung: int | None = None
    """Rung from 1 to `num_rungs` for all rollouts. None: each rollout has the rung of its number in the group; in
    validation and outside of groups, `initial_frames` decides."""
    initial_frames: int | None = None
    """Number of initial frames in validation. Their side is that of the ladder for this number (ours, gap 16). None: as
    many as the first rung has (table E1: 64)."""
    nested_times: bool = False
    """True: every rung takes its frames from those of the rung with the most frames, so that a group decodes no other
    frames. False: every rung spreads its own frames evenly (paper 4.1 says "uniformly")."""
    label_decimals: int = 2
    """Decimals of the time in a frame's label (ours, gap 8)."""

    # ---- tools
    tool_side_pixels: int = 448
    """Side of the square to which tools scale frames (paper B.2)."""
    min_call_frames: int = 8
    """Least number of frames of a clip (paper B.2)."""
    call_frames: int = 20
    """Largest number of frames of a clip (paper B.2). If it equals `min_call_frames`, the number is fixed."""

    # ---- reward
    format_penalty: float = 1.0
    """Amount subtracted from the reward of a rollout with an invalid format (paper 3.3)."""
    exploration_share: float = 0.2
    """Share of the tools' score that is paid with any answer. The rest is paid only with a correct one (paper 3.3). 0
    is the paper's ablation "strict gating"."""
    turn_reward: float = 0.5
    """Bonus of a rollout with 2 to `max_turns` turns (paper 3.3)."""
    turn_counting: Literal["turns", "summaries"] = "turns"
    """What counts as a turn: assistant turns (paper 3.3), or closed summaries (paper appendix; gap 26)."""

    def check_fields(self) -> None:
        for name in ("low", "high"):
            vt.require(self, name, min(getattr(self, name)) >= 1, "(frames, side in pixels), each at least 1")
        vt.require_at_least(self, 1, "num_rungs", "max_calls_per_turn", "tool_side_pixels", "min_call_frames")
        vt.require(
            self, "rung", self.rung is None or 1 <= self.rung <= self.num_rungs, f"1 to {self.num_rungs}, or None"
        )
        frames = self.initial_frames
        vt.require(self, "initial_frames", frames is None or frames >= 1, "at least 1, or None")
        bounds = f"at least {self.min_call_frames}"
        vt.require(self, "call_frames", self.call_frames >= self.min_call_frames, bounds)
        vt.require(self, "label_decimals", 0 <= self.label_decimals <= 6, "0 to 6")
        vt.require(self, "exploration_share", 0 <= self.exploration_share <= 1, "between 0 and 1")
        vt.require(self, "compat", self.compat == "strict", "'strict': there is no published code to follow")

    # ---------------------------------------------------------------------------------------------------------- ladder

    def for_session(self, session_id: int, group_size: int, validate: bool) -> FrameMind:
        """The config with the rollout's rung. Its number in the group decides, so the rung is the same after a restart
        or a new sampling."""
        if validate or self.rung is not None:
            return self
        return replace(self, num_rungs=group_size, rung=session_id % group_size + 1)

    def context_policy(self) -> vt.ContextPolicy:
        return getattr(vt, self.context)

    def ladder(self) -> list[Rung]:
        return resolution_ladder(self.num_rungs, self.low, self.high)

    def initial_rung(self) -> Rung:
        """Number and side of this rollout's initial frames."""
        if self.rung is not None:
            return self.ladder()[self.rung - 1]
        num_frames = self.low[0] if self.initial_frames is None else self.initial_frames
        if self.low[0] == self.high[0]:
            return num_frames, self.low[1]
        share = min(max(Fraction(self.low[0] - num_frames, self.low[0] - self.high[0]), Fraction(0)), Fraction(1))
        return num_frames, _rounded(self.low[1] + share * (self.high[1] - self.low[1]))

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """Frames of the whole video, in the number and size of the rung. A video with fewer frames shows each of them
        once.

        Frames are stretched to the square, whatever their aspect ratio (paper 4.1; gap 7).
        """
        num_frames, side_pixels = self.initial_rung()
        size = fit_envelope(side_pixels, side_pixels, envelope)
        if not self.nested_times:
            return vt.spread_frames(info, num_frames, size)
        densest = linspace_indices(0, info.num_frames - 1, max(num_frames, self.low[0], self.high[0]))
        positions = np.unique(np.linspace(0, len(densest) - 1, num_frames).round().astype(int))
        return vt.FrameRequest(*size, indices=tuple(densest[number] for number in positions))

    # ------------------------------------------------------------------------------------------------ prompt and tools

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then frames, each after its time, and the question."""
        frames = grammar.labelled_frames(images, self.label_decimals)
        return vt.initial_messages(
            self,
            __package__,
            (*frames, f"\n{sample.question.rstrip()}"),
            duration=vt.format_seconds(info.duration_seconds, decimals=1),
            max_turns=self.max_turns,
            max_calls_per_turn=self.max_calls_per_turn,
            call_frames=self.call_frames,
        )

    def parse(self, text: str) -> vt.ParsedTurn:
        return vt.refuse_surplus_calls(grammar.parse_turn(text), self.max_calls_per_turn)

    def continues_after(self, parsed: vt.ParsedTurn) -> bool:
        has_summary = parsed.summary is not None and self.continue_on != "tool_call"
        has_call = bool(parsed.calls) and self.continue_on != "turn_sum"
        return has_summary or has_call

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {FrameAt.name: FrameAt(side_pixels=self.tool_side_pixels), VideoClip.name: self.video_clip()}

    def video_clip(self) -> VideoClip:
        return VideoClip(
            min_frames=self.min_call_frames, max_frames=self.call_frames, side_pixels=self.tool_side_pixels
        )

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """For each call its frames, or a line that begins with ERROR, in order; then the number of the next turn."""
        evidence = [(*self._evidence(outcome), "\n") for outcome in outcomes] or [("No frames were asked for.\n",)]
        return vt.joined([*evidence, (f"Turn {self.max_turns - turns_left + 1} of {self.max_turns}.",)])

    def _evidence(self, outcome: vt.ToolOutcome) -> vt.Content:
        record, video = outcome.record, outcome.video
        if not record.ok:
            lasts = "" if video is None else f" The video lasts {vt.format_seconds(video.duration_seconds)} seconds."
            return (f"ERROR: {vt.format_error(record)}.{lasts}",)
        frames = vt.with_text(outcome, grammar.labelled_frames(outcome.images, self.label_decimals))
        if record.name == VideoClip.name and len(outcome.images) < self.min_call_frames:
            return (*frames, f"\nThis clip shows only {len(outcome.images)} different frames.")
        return frames

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """`accuracy`, `format` (0 or below), `tool` and `turn` (paper 3.3).

        The format is read from all assistant turns (ours, gap 24). Tools count by kind, from executed calls: using one
        tool often earns no more than using it once, and refused calls change nothing (ours, gap 25). Only what was
        shown counts, so one frame is not paid as two tools.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        score = await vt.answer_score(trajectory.answer, sample, judge)
        correct = score >= CORRECT_FROM
        paid_share = 1.0 if correct else self.exploration_share
        used = {_tool_used(call) for call in trajectory.executed_calls()}
        is_valid = grammar.is_valid_transcript("\n".join(turn.text for turn in trajectory.turns))
        return {
            "accuracy": self.accuracy_reward if correct else 0.0,
            "format": 0.0 if is_valid else -self.format_penalty,
            "tool": TOOLS_SCORES[len(used)] * paid_share,
            "turn": self.turn_reward if 2 <= self._num_turns(trajectory) <= self.max_turns else 0.0,
        }

    def _num_turns(self, trajectory: vt.Trajectory) -> int:
        if self.turn_counting == "turns":
            return len(trajectory.turns)
        return sum(grammar.num_summaries(turn.text) for turn in trajectory.turns)


def _tool_used(call: vt.CallRecord) -> str:
    """The tool that a call counts as: a clip of one frame shows what `FrameAt` does."""
    return FrameAt.name if len(call.frames) == 1 else call.name
