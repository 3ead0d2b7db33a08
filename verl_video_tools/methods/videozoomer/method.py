"""VideoZoomer (arXiv 2512.22315): initial frames of the whole video, then zooms into segments given in seconds.

Sources named at the fields: "paper" with its section; "code" is the published training code where the paper is silent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer import grammar
from verl_video_tools.video.resize import fit_pixels
from verl_video_tools.video.sampling import linspace_indices, not_before, uniform_seconds

# What a rollout is shown after its system prompt. In the reference profile order, tags and what errors state are the
# published ones. The words of its sentences are ours, until a user's `templates_file` brings those of a checkpoint.
_GO_ON = " between <think> and </think>, then {} or give your answer between <answer> and </answer>."
_ANSWER_NOW = (
    " between <think> and </think>. No zoom is left, so do not write <video_zoom> again: "
    "give your answer between <answer> and </answer> now."
)
_OF_FRAMES = "frames", "Think about what they show", "zoom in again"
_OF_ERROR = "error", "Think about what was wrong", "zoom in with a correct request"
"""Placeholder of a message, what to think about, and what may be done next."""
_FRAMES = "<tool_response>\nThe frames of your zoom:\n{frames}\n</tool_response>\n"
_ERROR = "<tool_response>\nError: {error}\n</tool_response>\n"
_USER = vt.Template("{frames}\n{question}", once=("frames", "question"))


def _both(name: str, text: str, last: str | None = None) -> dict[str, vt.Template]:
    """A message, and the one in its place before the last turn.

    Args:
        last: what the latter adds to the former; None: its end is `_ANSWER_NOW` instead.
    """
    placeholder, advice, again = _OF_FRAMES if name == "observation" else _OF_ERROR
    go_on = text + advice + _GO_ON.format(again)
    return {
        name: vt.Template(go_on, once=(placeholder,)),
        f"{name}_last": vt.Template(text + advice + _ANSWER_NOW if last is None else go_on + last, once=(placeholder,)),
    }


_STRICT: Mapping[str, vt.Template] = {
    "user": _USER,
    **_both("observation", _FRAMES),
    **_both("refusal", _ERROR),
    **_both("unreadable", _ERROR),
}

_NO_ZOOM_LEFT = "No zoom is left, so do not write <video_zoom> again: give your answer now."
"""The published code adds it without a space before it."""

_REFERENCE: Mapping[str, vt.Template] = {
    "user": _USER,
    **_both("observation", _FRAMES, _NO_ZOOM_LEFT),
    # The second tag of a refusal lacks its slash in the published code, and no line break follows it.
    **_both("refusal", "<tool_response>\nError: {error}<tool_response>", _NO_ZOOM_LEFT),
    **_both("unreadable", "<tool_response>\nERROR: {error}.\n</tool_response>\n", _NO_ZOOM_LEFT),
    "too_many_frames": vt.Template(
        "{num_frames} frames are more than the {max_frames} that a zoom shows.", optional=("num_frames", "max_frames")
    ),
    "no_numbers": vt.Template("cannot read segment and fps of {request}: {reason}", optional=("reason", "request")),
}
"""`too_many_frames` and `no_numbers` are what stands for ``{error}`` in a refusal and in an unreadable request."""


# ------------------------------------------------------------------------------------------------------------- the tool

_TOLERANCE = 1e-6
"""Frames; 1 fps from 0.2 s to 8.2 s are 8 frames, not 7.999999999999999."""

UNREADABLE = (TypeError, ValueError, LookupError, OverflowError)
"""What `numbers_reference` raises."""


@dataclass(frozen=True, kw_only=True)
class VideoZoom:
    """Shows ``int(fps * (end - start))`` frames spread evenly from `start` to `end`, both shown, each frame once.

    The frames are therefore a little further apart than `fps` says, as in the published code. A segment with fewer
    frames shows the frames that it has, however high the rate is.

    Attributes:
        max_frames: frames per call; `fps * (end - start)` must not exceed it (paper 3.1).
        max_pixels: a frame is shrunk to this area and keeps its aspect ratio; it is never enlarged.
        compat: `reference` truncates before it compares with the limit, clamps segments to the video, repeats frames if
            the rate is higher than that of the video, and shows nothing for a segment that is too short for a frame, as
            the published code does.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "video_zoom"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows frames of a segment at a chosen rate, then lists their times in "
            "the order shown. Too many frames, (end - start) * fps, are refused with the limit."
        ),
        parameters={
            "segment": ("array", "Start and end in seconds, [start, end], within the video."),
            "fps": ("number", "Frames per second to show."),
        },
    )

    max_frames: int
    max_pixels: int
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        vt.require_at_least(self, 1, "max_frames", "max_pixels")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"segment": [start_seconds, end_seconds], "fps": frames_per_second}``.

        Raises:
            CallRejected: `malformed_call`, `reversed_segment`, `out_of_range`, `segment_too_short` or
                `too_many_frames`; the message states the duration or the limit.
        """
        info = context.info
        size = fit_pixels(info.width, info.height, self.max_pixels, context.envelope)
        if self.compat == "reference":
            indices = self._indices_reference(arguments, info)
            return vt.ToolPlan(frames=vt.FrameRequest(*size, indices=indices) if indices else None)
        start, end, fps = _numbers(arguments)
        if start <= end:
            start, end = (vt.snap_to_end(seconds, info.duration_seconds) for seconds in (start, end))
        count = self._count(start, end, fps, info.duration_seconds)
        seconds = not_before(uniform_seconds(start, end, count), info.duration_seconds)
        return vt.ToolPlan(frames=vt.FrameRequest(*size, seconds=seconds, unique=True))

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A zoom of the whole video."""
        size = fit_pixels(info.width, info.height, self.max_pixels, envelope)
        seconds = uniform_seconds(0.0, info.duration_seconds, self.max_frames)
        return vt.FrameRequest(*size, seconds=not_before(seconds, info.duration_seconds))

    def _count(self, start: float, end: float, fps: float, duration_seconds: float) -> int:
        if fps <= 0:
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"fps must be above 0, got {fps:g}")
        if end < start:
            raise vt.CallRejected(
                vt.CallErrorCode.REVERSED_SEGMENT,
                f"segment [{start:g}, {end:g}] ends before it starts; give [start, end]",
            )
        if start < 0 or end > duration_seconds:
            raise vt.CallRejected(
                vt.CallErrorCode.OUT_OF_RANGE,
                f"segment [{start:g}, {end:g}] leaves the video, "
                f"which lasts from 0 to {vt.format_seconds(duration_seconds)} s",
            )
        requested = fps * (end - start)
        if requested > self.max_frames + _TOLERANCE:
            raise self._too_many(requested, start, end, fps)
        count = math.floor(requested + _TOLERANCE)
        if count < 1:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT,
                f"segment [{start:g}, {end:g}] holds no frame at {fps:g} fps; make it longer or raise fps",
            )
        return count

    def _indices_reference(self, arguments: Mapping[str, Any], info: vt.VideoInfo) -> tuple[int, ...]:
        try:
            start, end, fps = numbers_reference(arguments)
        except UNREADABLE as error:
            message = f"cannot read segment and fps: {error!r:.80}"
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, message) from error
        try:
            count = num_frames_reference(start, end, fps)
            if count > self.max_frames:
                raise self._too_many(count, start, end, fps)
            first, last = int(start * info.average_fps), int(end * info.average_fps)
        except (OverflowError, ValueError) as error:  # not finite
            raise vt.CallRejected(vt.CallErrorCode.OUT_OF_RANGE, str(error)) from error
        first = min(max(first, 0), info.num_frames - 1)
        last = min(max(last, first), info.num_frames - 1)
        try:
            return tuple(np.linspace(first, last, count).astype(np.int64).tolist())
        except ValueError as error:  # a negative number of frames: NumPy's words are what the published code says
            raise vt.CallRejected(vt.CallErrorCode.REVERSED_SEGMENT, str(error)) from error

    def _too_many(self, requested: float, start: float, end: float, fps: float) -> vt.CallRejected:
        return vt.CallRejected(
            vt.CallErrorCode.TOO_MANY_FRAMES,
            f"{fps:g} fps over [{start:g}, {end:g}] are {requested:g} frames; a zoom shows at most {self.max_frames}: "
            "shorten the segment or lower fps",
        )


def _numbers(arguments: Mapping[str, Any]) -> tuple[float, float, float]:
    """Start, end and rate as finite numbers; digits in quotes are numbers, too."""
    segment = arguments.get("segment")
    if not isinstance(segment, list | tuple) or len(segment) != 2:
        raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"segment must be [start, end], got {segment!r:.80}")
    start, end = (_number("segment", value) for value in segment)
    return start, end, _number("fps", arguments.get("fps"))


def _number(name: str, value: Any) -> float:
    number = vt.finite_number(value, read_text=True)
    if number is None:
        raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"{name} takes finite numbers, got {value!r:.80}")
    return number


def numbers_reference(arguments: Mapping[str, Any]) -> tuple[float, float, float]:
    """Start, end and rate as the published environment reads them.

    Raises:
        TypeError, ValueError, LookupError, OverflowError: they cannot be read; the model reads the text of the error.
    """
    segment = arguments["segment"]
    return float(segment[0]), float(segment[1]), float(arguments["fps"])


def num_frames_reference(start: float, end: float, fps: float) -> int:
    """The number of frames that a request has for the published environment.

    Raises:
        OverflowError, ValueError: the numbers are not finite.
    """
    return int(fps * (end - start))


# ----------------------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True, kw_only=True)
class VideoZoomer(vt.Method):
    """VideoZoomer's protocol, tool, prompt and reward. The defaults are those of the paper's recipe."""

    name: ClassVar[str] = "videozoomer"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "format", "tool")
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(
        prompt_tokens=20_480, response_tokens=32_768, images=128
    )
    oracle: ClassVar[str | None] = "verl_video_tools.methods.videozoomer.oracle:VideoZoomerOracle"
    tool_descriptions: ClassVar[tuple[vt.ToolDescription, ...]] = (VideoZoom.description,)
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:frames_in_seconds"

    stop: ClassVar[tuple[str, ...]] = (grammar.STOP,)  # a request ends its turn (code)

    max_turns: int = 5
    """Largest number of assistant turns: four zooms and the answer (paper 4.1, table 5)."""
    max_turn_tokens: int | None = 4096
    """Largest number of tokens generated in one turn (code)."""
    end_on_call_error: bool = False
    """False: an illegal request is answered with an error message (paper 3.1)."""

    glance_fps: float = 0.5
    """Frames per second of the initial frames (code; 3.1 calls it the default rate)."""
    initial_frames: int = 64
    """Largest number of initial frames. If `glance_fps` gives more, this number is spread evenly over the whole video
    (paper 4.1)."""
    call_frames: int = 16
    """Largest number of frames per zoom: the budget B of paper 3.1."""
    max_pixels: int = 100_352
    """Largest area of a frame in pixels, to which larger frames are shrunk: 128 tokens of 28x28 (paper appendix A)."""

    accuracy_reward: float = 0.9
    """Reward of a correct answer (paper table 5)."""
    format_reward: float = 0.1
    """Reward of a rollout that answers and whose turns all follow the grammar (paper table 5)."""
    tool_bonus: float = 0.5
    """Bonus of a rollout that zoomed, however often (paper table 5). A zoom that shows fewer than two different frames
    does not earn it (ours). The published script sets 0. A value below 0 is a penalty for any zoom."""
    bonus_condition: Literal["correct", "always"] = "correct"
    """`correct`: the bonus is paid only with a correct answer (paper 3.3). `always`: it is paid with any answer (an
    option of the code)."""
    call_penalty: float = 0.0
    """Amount by which each zoom reduces the bonus (an option of the code; the paper has none)."""
    require_zoom: bool = False
    """True: a rollout without a zoom that would earn the bonus earns nothing at all (an option of the code)."""

    def check_fields(self) -> None:
        vt.require_at_least(self, 1, "initial_frames", "call_frames", "max_pixels")
        vt.require(self, "glance_fps", self.glance_fps > 0, "above 0")
        vt.require_at_least(self, 0, "call_penalty")

    # ------------------------------------------------------------------------------------------------ prompt and tools

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """Frames at the rate `glance_fps`. If these are more than `initial_frames`, this many frames are spread from
        the first to the last."""
        size = fit_pixels(info.width, info.height, self.max_pixels, envelope)
        if self.compat == "reference":  # a whole number of frames apart, whatever the rate
            indices = tuple(range(0, info.num_frames, max(1, round(info.average_fps / self.glance_fps))))
            if len(indices) > self.initial_frames:
                indices = linspace_indices(0, info.num_frames - 1, self.initial_frames)
            return vt.FrameRequest(*size, indices=indices)
        return vt.rate_frames(info, self.glance_fps, self.initial_frames, size)

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then the frames, each after its label, and the question."""
        user = vt.render(self, "user", frames=grammar.labelled_frames(images), question=sample.question.rstrip())
        return vt.initial_messages(self, __package__, user, call_frames=self.call_frames, max_zooms=self.max_turns - 1)

    def message_templates(self) -> Mapping[str, vt.Template]:
        return _REFERENCE if self.compat == "reference" else _STRICT

    def parse(self, text: str) -> vt.ParsedTurn:
        return grammar.parse_turn_reference(text) if self.compat == "reference" else grammar.parse_turn(text)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        zoom = VideoZoom(max_frames=self.call_frames, max_pixels=self.max_pixels, compat=self.compat)
        return {zoom.name: zoom}

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """The frames of the zoom, or the reason why there are none. Before the last turn, the message says that no zoom
        is left."""
        outcome = outcomes[0]  # more than one only where all were refused for being several
        last = "_last" if turns_left <= 1 else ""
        if outcome.record.ok:
            frames = vt.with_text(outcome, grammar.labelled_frames(outcome.images))
            return vt.render(self, f"observation{last}", frames=frames)
        error = vt.format_error(outcome.record)
        name = "unreadable" if error.code == vt.CallErrorCode.MALFORMED_CALL else "refusal"
        reason = self._reason_reference(outcome.record, error) if self.compat == "reference" else str(error)
        return vt.render(self, f"{name}{last}", error=reason)

    def _reason_reference(self, record: vt.CallRecord, error: vt.CallError) -> str | vt.Content:
        """The reason as published, which names no code."""
        if error.code == vt.CallErrorCode.TOO_MANY_FRAMES:
            requested = num_frames_reference(*numbers_reference(record.arguments))
            return vt.render(self, error.code, num_frames=str(requested), max_frames=str(self.call_frames))
        is_json = record.arguments.keys() != {"request"}
        if error.code == vt.CallErrorCode.MALFORMED_CALL and is_json:
            try:
                numbers_reference(record.arguments)
            except UNREADABLE as reason:
                return vt.render(self, "no_numbers", reason=str(reason), request=str(record.arguments))
        return error.message

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """`accuracy`, `format` and `tool`, weighted (paper eq. 1). A partly right answer counts as wrong.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        if self.compat == "reference":
            findings = grammar.read_turns([turn.text for turn in trajectory.turns], self.call_frames)
        else:
            findings = self._findings(trajectory)
        correct = await self._is_correct(findings.answer, sample, judge)
        if self.require_zoom and not findings.zoomed:
            return self.no_components()
        return {
            "accuracy": self.accuracy_reward if correct else 0.0,
            "format": self.format_reward if findings.well_formed else 0.0,
            "tool": self._tool_reward(findings) if correct or self.bonus_condition == "always" else 0.0,
        }

    def _findings(self, trajectory: vt.Trajectory) -> grammar.Findings:
        executed = trajectory.executed_calls()
        return grammar.Findings(
            answer=trajectory.answer,
            well_formed=trajectory.is_well_formed() and len(executed) == len(trajectory.calls()),
            num_calls=len(executed),
            zoomed=any(len({frame.index for frame in call.frames}) >= 2 for call in executed),
        )

    async def _is_correct(self, answer: str | None, sample: vt.Sample, judge: vt.Judge | None) -> bool:
        if self.compat == "reference" and sample.question_type == "mc":
            return grammar.grade_letter_reference(answer or "", sample.ground_truth)
        return await vt.grade_answer(answer, sample, judge) is vt.AnswerLabel.CORRECT

    def _tool_reward(self, findings: grammar.Findings) -> float:
        if findings.num_calls == 0:
            return 0.0
        bonus = self.tool_bonus if findings.zoomed or self.tool_bonus < 0 else 0.0
        return bonus - self.call_penalty * findings.num_calls
