"""LongVT (arXiv 2511.20785): skim a long video, then crop into it by native tool calls; paid for answer and place.

Sources named at the fields: "paper" with its section; "code" is the published training code where the paper is silent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Literal

import numpy as np

from verl_video_tools.grading.overlap import boundary_agreement, temporal_recall
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt import grammar
from verl_video_tools.methods.toolkit.grammar import tools_section
from verl_video_tools.methods.toolkit.oracle import (
    Places,
    Plan,
    PlanningOracle,
    initial_frames_tell,
    native_call,
    video_info,
)
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.seconds import evidence_seconds
from verl_video_tools.synthetic.world import VideoSpec

MAX_CALLS_REFERENCE = 5
"""Number of calls after which a rollout ends without an answer with `compat="reference"` (code:
`multi_turn.max_tool_call`)."""
MAX_ANSWER_CHARACTERS = 1000
"""An answer of this length or longer earns neither accuracy nor format, because it would be a list of guesses
(code)."""

# What a rollout is shown after its system prompt. In the reference profile order, tags and the phrases around frames,
# errors and the path are the published ones. The reasons of its errors are in our words, until a user's
# `templates_file` brings those of a checkpoint.
_FRAMES, _ERROR = ("frames",), ("error",)


_STRICT: Mapping[str, vt.Template] = {
    "user": vt.Template("{question}\n\n{frames}", once=("frames", "question"), optional=("path",)),
    "observation": vt.Template("<tool_response>\n{frames}\n</tool_response>", once=_FRAMES),
    "refusal": vt.Template("<tool_response>\nError: {error}\n</tool_response>", once=_ERROR),
    "between": vt.Template("\n"),
}
"""Ours: the question before the frames."""

_REFERENCE: Mapping[str, vt.Template] = {
    "user": vt.Template(
        "{frames}{question}\n The Video path for this video is: {path}",
        once=("frames", "question"),
        optional=("path",),
    ),
    "observation": vt.Template(
        "<tool_response>\n{frames}The tool executed successfully. Here are the processed result</tool_response>",
        once=_FRAMES,
    ),
    "refusal": vt.Template(
        "<tool_response>\nTool execution failed: Error executing tool crop_video: {error}</tool_response>", once=_ERROR
    ),
    "between": vt.Template(""),
    "path_missing": vt.Template("video_path is missing"),
    "start_missing": vt.Template("start_time is missing"),
    "end_missing": vt.Template("end_time is missing"),
    "path_empty": vt.Template("video_path is empty"),
    "start_negative": vt.Template("start_time {start} is below 0", optional=("start", "end")),
    "end_not_after_start": vt.Template("end_time {end} is not after start_time {start}", optional=("start", "end")),
    "file_missing": vt.Template("there is no video {path}", optional=("path",)),
    "start_beyond": vt.Template(
        "start_time {start} is not before the end of the video, {duration} s", optional=("start", "end", "duration")
    ),
    "end_beyond": vt.Template(
        "end_time {end} is after the end of the video, {duration} s", optional=("start", "end", "duration")
    ),
    "too_short": vt.Template("there are no two frames between {start} and {end} s", optional=("start", "end", "path")),
    "wrong_types": vt.Template("times must be numbers, and video_path a text", optional=("arguments",)),
}
"""`between` stands between two replies; what follows it are the reasons that stand for ``{error}``, one for each check
of the published tool. A failure that is none of them is reported as it is."""

_REASONS = _REFERENCE.keys() - {"user", "observation", "refusal", "between"}


# ------------------------------------------------------------------------------------------------------------- the tool


@dataclass(frozen=True, kw_only=True)
class CropVideo:
    """Shows frames between `start_time` and `end_time` seconds, both ends included.

    No frame begins after the end, or before the frame that is shown at the start. The video is that of the row. A call
    may name it by path or file name, because checkpoints that were trained on the published prompt do this. A call that
    names another video is refused, and a file that a model names is never opened.

    Attributes:
        fps: frames shown per second of video.
        max_frames: largest number of frames per call; a longer segment is sampled more sparsely.
        min_pixels, max_pixels: area of a frame (code: 28 x 28 and 50,176).
        compat: `reference` checks calls and chooses frames as the published tool does: a call has to repeat the path
            exactly, and numbers may be written as strings.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = grammar.CROP_VIDEO
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows its frames from start_time to end_time, then lists their times "
            "in the order shown."
        ),
        parameters={
            "video_path": ("string", "Path of the video, if it was given with the question; may be left out."),
            "start_time": ("number", "Where the part starts, in seconds from the start of the video."),
            "end_time": ("number", "Where the part ends, in seconds; after start_time, within the video."),
        },
        optional=("video_path",),
        frame_label="{frame.timestamp_seconds:.1f} s",
    )

    fps: float
    max_frames: int
    min_pixels: int
    max_pixels: int
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        vt.require(self, "fps", 0.0 < self.fps < math.inf, "a finite number above 0")
        vt.require_at_least(self, 2, "max_frames")
        vt.require_at_least(self, 1, "min_pixels")
        vt.require(self, "max_pixels", self.max_pixels >= self.min_pixels, f"at least min_pixels, {self.min_pixels}")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_time": seconds, "end_time": seconds, "video_path"?: str}``. Other arguments are ignored.

        The result repeats the segment as numbers, ``{"start_time": float, "end_time": float}``.

        Raises:
            CallRejected: `malformed_call`, `wrong_video`, `out_of_range`, `reversed_segment` (also for an empty
                segment), or `segment_too_short` for a segment in which only one frame is shown.
            VideoError: the presentation times of the file cannot be read.
        """
        if self.compat == "reference":
            return self._plan_reference(arguments, context)
        _check_video(arguments.get("video_path"), context.sample.video_path)
        start, end = (vt.seconds_argument(arguments, name) for name in ("start_time", "end_time"))
        duration = context.info.duration_seconds
        if start < 0 or start >= duration:
            raise vt.CallRejected(
                vt.CallErrorCode.OUT_OF_RANGE,
                f"start_time {start:g} must be from 0 to below {vt.format_seconds(duration)} seconds",
            )
        if end <= start:
            raise vt.CallRejected(
                vt.CallErrorCode.REVERSED_SEGMENT, f"end_time {end:g} must be after start_time {start:g}"
            )
        end = vt.snap_to_end(end, duration)
        if end > duration:
            raise vt.CallRejected(
                vt.CallErrorCode.OUT_OF_RANGE,
                f"end_time {end:g} is after the end of the video ({vt.format_seconds(duration)} seconds)",
            )
        first, last = await context.index_at(start), await context.index_at(end)
        if first == last:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT, f"there are no two frames between {start:g} and {end:g} seconds"
            )
        size = vt.frame_size(context.info, self.min_pixels, self.max_pixels, context.envelope)
        if last - first == 1:  # both ends may be nearest to the same one
            request = vt.FrameRequest(*size, indices=(first, last))
        else:
            times = segment_seconds(start, end, context.info, self.fps, min(self.max_frames, last - first + 1))
            request = nearest_frames(times, size, within=(start, end))
        return vt.ToolPlan(frames=request, result={"start_time": start, "end_time": end})

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A crop of the whole video."""
        size = vt.frame_size(info, self.min_pixels, self.max_pixels, envelope)
        return nearest_frames(video_seconds(info, self.fps, self.max_frames), size)

    def frame_numbers(self, start: float, end: float, info: vt.VideoInfo) -> list[int]:
        """Numbers of the frames of a crop, ascending, in a video of an even rate."""
        first, last = (min(int(time * info.average_fps + 1e-6), info.num_frames - 1) for time in (start, end))
        if last - first <= 1:
            return [first, last]
        times = segment_seconds(start, end, info, self.fps, min(self.max_frames, last - first + 1))
        return sorted({min(int(time * info.average_fps + 0.5 + 1e-6), last) for time in times})

    def _plan_reference(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        start, end = checked_times(arguments, context.sample.video_path, context.info)
        indices = published_indices(start, end, context.info, self.fps, self.max_frames)
        if not indices:
            raise vt.CallRejected(vt.CallErrorCode.SEGMENT_TOO_SHORT, f"too_short: start_time={start}, end_time={end}")
        size = vt.frame_size(context.info, self.min_pixels, self.max_pixels, context.envelope)
        frames = vt.FrameRequest(*size, indices=indices)
        return vt.ToolPlan(frames=frames, result={"start_time": start, "end_time": end})


def segment_seconds(start: float, end: float, info: vt.VideoInfo, fps: float, max_frames: int) -> tuple[float, ...]:
    """Times of the frames of a segment, spread evenly over it, first and last frame included.

    Each time means the frame that begins nearest to it. The rule is that of qwen-vl-utils, with which the published
    checkpoints were trained (https://github.com/QwenLM/Qwen2.5-VL): `fps` frames per second, at least 2, at most
    `max_frames`, an even number of them.

    Args:
        start, end: seconds, 0 <= start < end <= duration.
        max_frames: at most the number of frames that are shown in the segment.

    Returns:
        Seconds in ascending order; the start alone if there is a single frame.
    """
    last = max(start, min(end, info.last_seconds))
    num_frames = math.floor((last - start) * info.average_fps + 1e-6) + 1
    count = min(max(num_frames / info.average_fps * fps, 2.0), max_frames)
    return tuple(np.linspace(start, last, max(2 * math.floor(count / 2.0 + 1e-9), 1)).tolist())


def nearest_frames(
    seconds: tuple[float, ...], size: tuple[int, int], within: tuple[float, float] | None = None
) -> vt.FrameRequest:
    """The frames that begin nearest to some times, each once. With a variable frame rate, several times may mean one
    frame.

    Args:
        size: width and height in pixels.
        within: as in `FrameRequest`.
    """
    return vt.FrameRequest(*size, seconds=seconds, rounding="nearest", unique=True, within=within)


def video_seconds(info: vt.VideoInfo, fps: float, max_frames: int) -> tuple[float, ...]:
    """Times of the frames of a whole video, as `segment_seconds` chooses them."""
    return segment_seconds(0.0, info.duration_seconds, info, fps, min(max_frames, info.num_frames))


def _check_video(named: Any, video_path: str) -> None:
    if named is None:
        return
    if not isinstance(named, str) or not named:
        raise vt.CallRejected(
            vt.CallErrorCode.MALFORMED_CALL, f"video_path must be text, and may be left out; got {named!r:.80}"
        )
    if named.removeprefix("file://") not in (video_path, PurePath(video_path).name):
        # The right name is not reported: it may give the answer away.
        raise vt.CallRejected(
            vt.CallErrorCode.WRONG_VIDEO, f"{named[:80]!r} is not the video of this question; leave video_path out"
        )


# --------------------------------------------------------------------------------------------------- the published tool
# Checks and frames of examples/video_tools/mcp_server.py and qwen-vl-utils 0.0.11, for `compat="reference"` alone. The
# published tool opens whatever file a call names; here a call that does not name the row's video finds no file.

_TIMES = ("start_time", "end_time")


def checked_times(arguments: Mapping[str, Any], video_path: str, info: vt.VideoInfo) -> tuple[float, float]:
    """Start and end of a call in seconds, checked in the published order.

    Raises:
        CallRejected: its message starts with the name of the check that failed, which is that of the template by which
            the model reads it (`methods.longvt.method`).
    """
    malformed, out_of_range = vt.CallErrorCode.MALFORMED_CALL, vt.CallErrorCode.OUT_OF_RANGE
    path = arguments.get("video_path", "")
    times = {name: _number(arguments[name]) for name in _TIMES if name in arguments}
    start, end = times.get("start_time") or 0.0, times.get("end_time") or 0.0
    duration = published_duration(info)
    for holds, code, name in (
        (isinstance(path, str) and None not in times.values(), malformed, "wrong_types"),
        ("video_path" in arguments, malformed, "path_missing"),
        ("start_time" in arguments, malformed, "start_missing"),
        ("end_time" in arguments, malformed, "end_missing"),
        (bool(str(path).strip()), malformed, "path_empty"),
        (not start < 0, out_of_range, "start_negative"),
        (not end <= start, vt.CallErrorCode.REVERSED_SEGMENT, "end_not_after_start"),
        (path == video_path, vt.CallErrorCode.WRONG_VIDEO, "file_missing"),
        (not start >= duration, out_of_range, "start_beyond"),
        (not end > duration, out_of_range, "end_beyond"),
    ):
        if not holds:
            written = ", ".join(f"{key}={arguments[key]!r:.80}" for key in times)
            raise vt.CallRejected(code, f"{name}: {written}")
    return start, end


def format_values(arguments: Mapping[str, Any], info: vt.VideoInfo | None) -> dict[str, str]:
    """The values in an error, as the published tool writes them."""
    times = {name: _number(arguments.get(name)) for name in _TIMES}
    return {
        "start": str(times["start_time"]),
        "end": str(times["end_time"]),
        "duration": "" if info is None else f"{published_duration(info):.2f}",
        "path": str(arguments.get("video_path")),
        "arguments": str(dict(arguments)),
    }


def published_duration(info: vt.VideoInfo) -> float:
    """Seconds, as the published tool computes them."""
    return info.num_frames / info.average_fps


def published_indices(start: float, end: float, info: vt.VideoInfo, fps: float, max_frames: int) -> tuple[int, ...]:
    """Frames of a segment: both ends included, an even number, at least 2; none if the segment has fewer than two
    frames.

    Positions are spread in float32 from both ends, as `torch.linspace` does, and rounded half to even.
    """
    if not math.isfinite(end - start):  # text may say "nan", which passes the published checks
        return ()
    first = math.ceil(start * info.average_fps)
    last = min(math.floor(end * info.average_fps), info.num_frames - 1)
    total = last - first + 1
    if total < 2:
        return ()
    target = min(max(total / info.average_fps * fps, 2), min(max_frames, total) // 2 * 2)
    count = int(target) // 2 * 2
    steps = np.arange(count, dtype=np.float32)
    step = np.float32(last - first) / np.float32(count - 1)
    forward, backward = np.float32(first) + step * steps, np.float32(last) - step * (count - 1 - steps)
    positions = np.rint(np.where(steps < count // 2, forward, backward))
    return tuple(positions.astype(int).tolist())


def _number(value: Any) -> float | None:
    """A number as the published tool's server reads one: also from text, and from true and false; None for others."""
    if not isinstance(value, bool | int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


# ----------------------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True, kw_only=True)
class LongVT(vt.Method):
    """LongVT's protocol, tool, prompt and reward. The defaults are those of the paper's reinforcement-learning
    stage."""

    name: ClassVar[str] = "longvt"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "format", "temporal_iou")
    # The published 36,000 tokens of prompt hold 512 frames without their times; a time costs up to 9 tokens a frame.
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(
        prompt_tokens=40_960, response_tokens=16_384, images=1152
    )
    oracle: ClassVar[str | None] = "verl_video_tools.methods.longvt.method:LongVTOracle"
    tool_descriptions: ClassVar[tuple[vt.ToolDescription, ...]] = (CropVideo.description,)
    synthetic_question: ClassVar[str | None] = "verl_video_tools.synthetic.seconds:windows_in_seconds"

    max_turns: int = 5
    """Largest number of assistant turns, including the answer (code)."""
    end_on_call_error: bool = False
    """False: the model reads why a call was refused, and continues (code)."""

    fps: float = 1.0
    """Frames per second of video, in the initial frames and in crops (code)."""
    initial_frames: int = 512
    """Largest number of initial frames; a longer video is sampled more sparsely (code). The paper's evaluation has 768
    (5.1)."""
    call_frames: int = 128
    """Largest number of frames of one crop (code)."""
    min_pixels: int = 784
    """Least area of a frame in pixels (code: 28 x 28)."""
    max_pixels: int = 50_176
    """Largest area of a frame in pixels (code: 224 x 224)."""
    max_calls_per_turn: int = 5
    """Number of calls of one turn that are executed; further calls are refused with `multiple_calls` (code)."""

    tools_section: str | None = None
    """Text that lists the tools in the system prompt, with `{schemas}` in the place of the list. None: our own text.
    The config groups use the text of the model's chat template if it has one, because the model was trained on it."""

    accuracy_reward: float = 1.0
    """Reward of a correct answer; a partly correct answer earns half of it (paper 4.2)."""
    format_reward: float = 1.0
    """Reward of a rollout whose tags are in order (paper 4.2)."""
    time_weight: float = 1.0
    """Factor of the temporal reward (paper 4.2)."""
    time_reward: Literal["iou", "recall", "boundary", "tool", "none"] = "iou"
    """What the component `temporal_iou` pays. `iou`: overlap with the annotated segment (paper 4.2). Ablations:
    `recall` (paper 5.3: invites inflated spans), `tool` (1 for a call beside an answer that is not wrong; paper 5.3),
    `none` (without the decoupled reward; paper table 3), `boundary` (IoU times the agreement of both ends; code of a
    later branch)."""

    def check_fields(self) -> None:
        vt.require_at_least(self, 1, "max_calls_per_turn")
        vt.require_at_least(self, 2, "initial_frames", "call_frames")
        has_schemas = self.tools_section is None or "{schemas}" in self.tools_section
        vt.require(self, "tools_section", has_schemas, "a text with {schemas}, or None")
        vt.require(self, "fps", 0.0 < self.fps < math.inf, "a finite number above 0")
        vt.require_at_least(self, 1, "min_pixels")
        vt.require(self, "max_pixels", self.max_pixels >= self.min_pixels, f"at least {self.min_pixels}")

    # ------------------------------------------------------------------------------------------------ prompt and tools

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """Frames of the whole video, including the first and the last one."""
        size = vt.frame_size(info, self.min_pixels, self.max_pixels, envelope)
        if self.compat == "reference":
            indices = published_indices(0.0, info.duration_seconds, info, self.fps, self.initial_frames)
            return vt.FrameRequest(*size, indices=indices or (0,))
        return nearest_frames(video_seconds(info, self.fps, self.initial_frames), size)

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt with the schema of the tool, then question and frames, each after its time.

        With `compat="reference"` there are only frames, question and the path of the video, as published. A policy then
        cannot tell a frame's position from its time if a video is sampled at less than one frame per second.
        """
        with_times = 'You see frames of it, each after its time in seconds, such as "12.0s".'
        user = vt.render(
            self, "user", question=sample.question.rstrip(), frames=self.labelled(images), path=sample.video_path
        )
        return vt.initial_messages(
            self,
            __package__,
            user,
            duration=vt.format_seconds(info.duration_seconds, decimals=1),
            frames=with_times if self.compat == "strict" else "You see frames of it, spread evenly over its length.",
            fps=f"{self.fps:g}",
            call_frames=self.call_frames,
            max_turns=self.max_turns,
            tools=tools_section(self.tool_schemas(), self.tools_section),
        )

    def picture_prompt(self, question: str, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The pictures, then the question: 58,022 rows of the published cold start are about pictures (table 1)."""
        system = vt.load_prompt(__package__, "prompt_pictures.txt", None)
        return [vt.Message("system", (system,)), vt.Message("user", (*images, f"\n{question.strip()}"))]

    def message_templates(self) -> Mapping[str, vt.Template]:
        return _REFERENCE if self.compat == "reference" else _STRICT

    def parse(self, text: str) -> vt.ParsedTurn:
        parse = grammar.parse_turn_reference if self.compat == "reference" else vt.parse_turn
        return vt.refuse_surplus_calls(parse(text), self.max_calls_per_turn)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {CropVideo.name: self.crop_video()}

    def crop_video(self) -> CropVideo:
        return CropVideo(
            fps=self.fps,
            max_frames=self.call_frames,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            compat=self.compat,
        )

    def tool_schemas(self) -> list[dict[str, Any]]:
        """The tools as the model reads about them. Only the published dialogue names the path of the video, which may
        give the answer away. The tool always shows the video of the row."""
        path = ("string", "Path of the video, as given with the question.")
        parameters = {**CropVideo.description.parameters, "video_path": path}
        if self.compat == "strict":
            del parameters["video_path"]
        return [vt.tool_schema(CropVideo.name, "Shows a part of the video more closely.", parameters)]

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """One `<tool_response>` per call: its frames, or why it was refused."""
        return vt.joined(map(self._response, outcomes), vt.render(self, "between"))

    def _response(self, outcome: vt.ToolOutcome) -> vt.Content:
        if outcome.record.ok:
            return vt.render(self, "observation", frames=vt.with_text(outcome, self.labelled(outcome.images)))
        error = vt.format_error(outcome.record)
        if self.compat == "strict":
            return vt.render(self, "refusal", error=str(error))
        reason: str | vt.Content = error.message
        if (name := error.message.partition(":")[0]) in _REASONS:
            reason = vt.render(self, name, **format_values(outcome.record.arguments, outcome.video))
        return vt.render(self, "refusal", error=reason)

    def ends_on_budget(self) -> bool:
        """True with `compat="reference"`, as published, which costs the answer. Otherwise the model reads an error and
        may request a smaller crop."""
        return self.compat == "reference"

    def stop_reason_after(self, trajectory: vt.Trajectory) -> vt.StopReason | None:
        """With `compat="reference"` only, as published: no turn follows once a rollout has used up its calls."""
        used_up = len(trajectory.calls()) >= MAX_CALLS_REFERENCE
        return vt.StopReason.MAX_TURNS if self.compat == "reference" and used_up else None

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """`accuracy`, `format` and `temporal_iou`, weighted (paper 4.2).

        The temporal reward does not depend on the answer, and is paid without one, too. A row without an annotated
        segment earns nothing for it.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        findings = self._findings(trajectory, sample)
        is_published_segment = self.compat == "reference" and sample.question_type == "segment"
        too_long = len(findings.answer) >= MAX_ANSWER_CHARACTERS and not is_published_segment
        score = 0.0 if too_long else await self._answer_score(findings.answer, sample, judge)
        return {
            "accuracy": self.accuracy_reward * score,
            "format": self.format_reward if findings.well_formed and not too_long else 0.0,
            "temporal_iou": self.time_weight * self._time_term(trajectory, findings, sample, score),
        }

    def _findings(self, trajectory: vt.Trajectory, sample: vt.Sample) -> grammar.Findings:
        if self.compat == "reference":
            return grammar.published_findings(trajectory.turns, is_segment=sample.question_type == "segment")
        results = [call.result for call in trajectory.executed_calls()]
        # Of a subclass, a tool that answers in words has none.
        segments = [(result["start_time"], result["end_time"]) for result in results if "start_time" in result]
        well_formed = grammar.is_well_formed(trajectory)
        return grammar.Findings(trajectory.answer or "", well_formed, segments, called=bool(segments))

    def acc(self, reward: Mapping[str, float], sample: vt.Sample) -> float:
        """The value of every method. For a question whose answer is a segment it is the IoU, so that its mean is
        mIoU."""
        if sample.question_type == "segment" and self.accuracy_reward > 0:
            return reward.get("accuracy", 0.0) / self.accuracy_reward
        return super().acc(reward, sample)

    async def _answer_score(self, answer: str, sample: vt.Sample, judge: vt.Judge | None) -> float:
        """How right an answer is, in [0, 1]. An empty one is wrong, and no judge is asked."""
        if not answer:
            return 0.0
        if sample.question_type != "segment":
            return await vt.answer_score(answer, sample, judge)
        truth = vt.segment_of(sample.ground_truth)
        named = grammar.listed_segment(answer) if self.compat == "reference" else vt.segment_of(answer)
        return 0.0 if named is None or truth is None else vt.temporal_iou(named, truth)

    def _time_term(
        self, trajectory: vt.Trajectory, findings: grammar.Findings, sample: vt.Sample, score: float
    ) -> float:
        """The temporal reward of the last segment.

        Questions whose answer is a segment have none: that answer's IoU is their accuracy, and their published sum is
        accuracy and format (code).
        """
        if self.time_reward == "none" or sample.question_type == "segment":
            return 0.0
        if self.time_reward == "tool":
            return float(findings.called and score >= 0.5)
        truth, info = sample.video_segment_seconds, trajectory.video
        if truth is None or info is None or not findings.segments:
            return 0.0
        last = findings.segments[-1]
        if self.time_reward == "recall":
            return temporal_recall(last, truth)
        iou = vt.temporal_iou(last, truth)
        if self.time_reward == "boundary":
            return iou * boundary_agreement(last, truth, info.duration_seconds)
        return iou

    # ------------------------------------------------------------------------------------------------------- internals

    def labelled(self, images: Sequence[vt.ImagePart]) -> vt.Content:
        """One line per frame with its time before it; bare images with `compat="reference"`, as published."""
        if self.compat == "reference":
            return tuple(images)
        return vt.frame_lines(images, lambda seconds: f"{seconds:.1f}s ")


# ------------------------------------------------------------------------------------ oracle of the synthetic world


@dataclass(frozen=True, kw_only=True)
class LongVTOracle(PlanningOracle):
    """Writes what a competent policy would write for a question of the synthetic world.

    Template A answers at once, from the initial frames. Template B crops the part that the question names, then
    answers. The oracle concludes only from frames that it was shown, so its thoughts are true.
    """

    takes_open_questions: ClassVar[bool] = True
    answer_turn: ClassVar[str] = "<think>{thought}. {answer}</think>\n<answer>{answer}</answer>"
    frame_name: ClassVar[str] = "{seconds:.1f}s"

    method: LongVT

    def _plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        if initial_frames_tell(self.method, spec, question):
            return "A", []
        return "B", [evidence_seconds(spec, question)]

    def _careless_plan(self, rng: random.Random, spec: VideoSpec, question: Question) -> Plan:
        start = round(rng.uniform(0.0, spec.duration_seconds - 6.0), 1)
        if rng.random() < self.skip_rate:
            return "A", []
        return "B", [(start, round(start + rng.uniform(2.0, 6.0), 1))]

    def _calls(self, spec: VideoSpec, question: Question, template: str, places: Places) -> tuple[list[str], list[int]]:
        if not places:
            return [], [question.evidence[0][0]] if initial_frames_tell(self.method, spec, question) else []
        ((start, end),) = places
        arguments = {"start_time": round(start, 1), "end_time": round(end, 1)}
        turn = native_call(f"between {start:.1f}s and {end:.1f}s", CropVideo.name, arguments)
        return [turn], self.method.crop_video().frame_numbers(start, end, video_info(spec))
