"""FrameThinker (arXiv 2509.24304): zoom by frame numbers, and a bonus for zooms on the way to a right answer.

Sources named at the fields: "paper" with its section; "code" is the published training code where the paper is silent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.framethinker import grammar
from verl_video_tools.video.resize import fit_box
from verl_video_tools.video.sampling import linspace_indices

LONG_VIDEO_SECONDS = 300.0
"""A video is long if it lasts longer than this; a video of exactly this length is short (code)."""
MAX_TURN_BONUS = 0.6
"""Upper bound of the ablation's bonus per turn (paper D.2)."""

_TEMPLATES: Mapping[str, vt.Template] = {
    "user": vt.Template("{question}\n\n{frames}", once=("question", "frames")),
    **vt.FRAME_TEMPLATES,
    "observation": vt.Template("{frames}", once=("frames",)),
    "frame_number": vt.Template(grammar.FRAME_NUMBER, once=("number",), optional=("time",)),
    "refusal": vt.Template("The action was refused: {error}", optional=("error",)),
    "answer_only": vt.Template(
        vt.load_prompt(__package__, "prompt_answer_only.txt", None), optional=("initial_frames",)
    ),
}

_TIME = re.compile(r"\d+:\d+(:\d+)?")
"""In a question."""
_CLOCK = re.compile(r"(\d{1,3}):(\d{2})")


@dataclass(frozen=True, kw_only=True)
class ChooseFrames:
    """Shows `num_frames` frames strictly between `start_frame` and `end_frame`, spread evenly.

    Both ends are exclusive, so a segment needs `end_frame - start_frame >= num_frames + 1`, and `end_frame` may be the
    number of frames in the video (one past the last).

    Attributes:
        num_frames: frames shown per call.
        box: width and height in pixels. A frame is shrunk to fit into it and keeps its aspect ratio; it is never
            enlarged.
        compat: `reference` treats an end after the video as the end of the video, and truncates sizes as the published
            code does.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = "choose_frames"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows a fixed number of frames spread evenly between two frame "
            "numbers, both exclusive, then lists their numbers and times in the order shown."
        ),
        parameters={
            "start_frame": ("integer", "Frame number after which the segment starts, from 0."),
            "end_frame": ("integer", "Frame number before which the segment ends; at most the number of frames."),
        },
        frame_label=vt.NUMBER_AND_TIME,
    )

    num_frames: int
    box: tuple[int, int]
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        vt.require_at_least(self, 1, "num_frames")
        vt.require(self, "box", min(self.box) >= 1, "sides of at least 1 pixel")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_frame": int, "end_frame": int}``. The result has the times of the range
        (`ToolContext.range_seconds`).

        Raises:
            CallRejected: `malformed_call`, `reversed_segment`, `out_of_range` or `segment_too_short`.
            VideoError: the file cannot be asked for times.
        """
        start, end = (_frame_number(arguments, name) for name in ("start_frame", "end_frame"))
        last_end = context.info.num_frames
        if self.compat == "reference":
            if not 0 <= start <= last_end:
                raise vt.CallRejected(
                    vt.CallErrorCode.OUT_OF_RANGE,
                    f"start {start!s:.80} is outside the video; frame numbers run from 0 to {last_end - 1}",
                )
            end = min(end, last_end)
        elif start > end:
            raise vt.CallRejected(
                vt.CallErrorCode.REVERSED_SEGMENT, f"start {start!s:.80} is after end {end!s:.80}; give START < END"
            )
        elif start < 0 or start >= last_end or end > last_end:
            raise vt.CallRejected(
                vt.CallErrorCode.OUT_OF_RANGE,
                f"segment {start!s:.80} to {end!s:.80} is outside the video; "
                f"frame numbers run from 0 to {last_end - 1}",
            )
        if end - start < self.num_frames + 1:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT,
                f"segment {start} to {end!s:.80} is too short for {self.num_frames} frames; "
                f"END must be at least START + {self.num_frames + 1}",
            )
        size = self.frame_size(context.info, context.envelope)
        indices = linspace_indices(start + 1, end - 1, self.num_frames)
        return vt.ToolPlan(
            frames=vt.FrameRequest(*size, indices=indices), result=await context.range_seconds(start + 1, end - 1)
        )

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A call for the whole video."""
        return vt.spread_frames(info, self.num_frames, self.frame_size(info, envelope))

    def frame_size(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int]:
        """Width and height of a shown frame in pixels."""
        rounding: Literal["floor", "nearest"] = "floor" if self.compat == "reference" else "nearest"
        return fit_box(info.width, info.height, *self.box, envelope, rounding=rounding)


def _frame_number(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise vt.CallRejected(
            vt.CallErrorCode.MALFORMED_CALL, f"{name} must be a whole frame number, got {value!r:.80}"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class GetFrameNumber:
    """Answers with the number of the frame shown at MM:SS. It shows no image.

    Attributes:
        compat: `strict` looks the frame up, which is right for a variable frame rate, too. `reference` multiplies
            seconds by the average frame rate and truncates, without any check of range, as the published code does.
    """

    name: ClassVar[str] = "get_frame_number"
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description="Tells the number of the frame that is shown at a time of the video.",
        parameters={
            "time": ("string", "Minutes and seconds as MM:SS; hours count as minutes, so 1:05:20 is 65:20."),
        },
        result_text=lambda arguments, result: grammar.FRAME_NUMBER.format(
            time=arguments["time"], number=result["frame_number"]
        ),
    )

    compat: vt.Compat = "strict"

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Result ``{"frame_number": int}`` for ``{"time": "MM:SS"}``; hours are written as minutes.

        Raises:
            CallRejected: `malformed_call`, or `out_of_range` for a time after the end of the video.
            VideoError: the frame could not be looked up.
        """
        time = arguments.get("time")
        if not isinstance(time, str):
            raise vt.CallRejected(vt.CallErrorCode.MALFORMED_CALL, f"time must be text like '12:05', got {time!r:.80}")
        if self.compat == "reference":
            frame_number = int(_seconds_reference(time) * context.info.average_fps)
        else:
            frame_number = await context.index_at(_clock_seconds(time, context.info.duration_seconds))
        return vt.ToolPlan(result={"frame_number": frame_number})


def _clock_seconds(time: str, duration_seconds: float) -> float:
    match = _CLOCK.fullmatch(time)
    if match is None or int(match[2]) >= 60:
        raise vt.CallRejected(
            vt.CallErrorCode.MALFORMED_CALL,
            f"time {time!r:.80} is not MM:SS with up to three digits of minutes and two of seconds below 60",
        )
    seconds = 60.0 * int(match[1]) + int(match[2])
    if seconds > duration_seconds:
        raise vt.CallRejected(
            vt.CallErrorCode.OUT_OF_RANGE, f"time {time} is after the end of the video ({duration_seconds:.2f} s)"
        )
    return seconds


def _seconds_reference(time: str) -> int:
    try:
        minutes, seconds = (int(part) for part in time[:40].split(":"))  # the cut keeps the product a finite float
    except ValueError as error:
        raise vt.CallRejected(
            vt.CallErrorCode.MALFORMED_CALL, f"time {time[:40]!r} is not two numbers MM:SS"
        ) from error
    return 60 * minutes + seconds


@dataclass(frozen=True, kw_only=True)
class FrameThinker(vt.Method):
    """FrameThinker's protocol, tools, prompt and reward. The defaults are those of the large-scale recipe."""

    name: ClassVar[str] = "framethinker"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "action_bonus", "format", "ccv")
    unpaid_components: ClassVar[tuple[str, ...]] = ("ccv",)
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=8192, response_tokens=8192, images=60)
    oracle: ClassVar[str | None] = "verl_video_tools.methods.framethinker.oracle:FrameThinkerOracle"
    tool_descriptions: ClassVar[tuple[vt.ToolDescription, ...]] = (
        ChooseFrames.description,
        GetFrameNumber.description,
    )

    max_turns: int = 5
    """Largest number of assistant turns, including the answer (code)."""
    max_turn_tokens: int | None = 8192
    """Largest number of tokens generated in one turn (code)."""

    initial_frames: int = 8
    """Number of initial frames of a short video (code; paper 3.1 says "e.g. 8")."""
    initial_frames_long: int = 12
    """Number of initial frames of a long video (code)."""
    call_frames: int = 8
    """Number of frames of a `choose_frames` call on a short video (code: as many as the initial frames)."""
    call_frames_long: int = 12
    """Number of frames of a `choose_frames` call on a long video (code)."""
    box: tuple[int, int] = (640, 360)
    """Width and height in pixels; a frame of a short video is shrunk to fit into them (code)."""
    box_long: tuple[int, int] = (448, 252)
    """The same for a long video (code)."""

    accuracy_reward: float = 1.0
    """Reward of a correct answer (paper eq. 4; code)."""
    answer_grading: Literal["exact", "choice"] = "exact"
    """`exact`: the first word of the answer has to equal the truth, case and punctuation included (code). `choice`: any
    usual way of naming the option counts, as `rewards.grade_multiple_choice` reads it."""
    choose_bonus: float = 0.02
    """Bonus of a rollout that executed `choose_frames` at least once. The value is that of the code's large-scale run;
    the paper's small-scale weight is missing in the text that we have."""
    time_bonus: float = 0.5
    """Bonus of a rollout that was given a frame number above 0. The value is that of the code's large-scale run; the
    small-scale weight is missing as above."""
    time_bonus_for: Literal["any_question", "timed_question", "named_time"] = "timed_question"
    """Condition of `time_bonus`. `timed_question`: the question names a time such as 0:34, and the rollout looked up
    any time (code; the paper does not say). `named_time` (ours): the rollout looked up a time that the question names.
    `any_question`: no condition."""
    bonus_condition: Literal["correct", "always"] = "correct"
    """`correct`: bonuses are paid only with a correct answer (paper eq. 5). `always` is the ablation of paper D.1,
    which pays 0.2 for one action type."""
    turn_bonus: float = 0.0
    """Ablation of paper eq. 7 (paper: 0.2). If it is above 0, `turn_bonus * (turns - 1)`, at most 0.6, replaces both
    action bonuses."""
    format_reward: float = 0.0
    """Ablation of paper 3.3.1: reward of a rollout that answers and whose turns all follow the grammar exactly. The
    paper's weight is "comparable to the accuracy reward"; its own recipe has none."""

    ccv: bool = True
    """Cognitive Consistency Verification: an inconsistent rollout earns nothing (paper eq. 6, D.3)."""
    ccv_profile: grammar.Profile = "train"
    """Rules of the verification: those of the reward, or those of the run-time safeguard (code); see
    `methods.framethinker.grammar`."""

    answer_only: bool = False
    """Use the system prompt that asks for an answer without actions, for the last of several attempts in evaluation
    (`attempt`). This prompt takes precedence over `prompt_file`; the template `answer_only` replaces it."""

    def check_fields(self) -> None:
        vt.require_at_least(self, 1, "initial_frames", "initial_frames_long", "call_frames", "call_frames_long")
        for name in ("box", "box_long"):
            vt.require(self, name, min(getattr(self, name)) >= 1, "sides of at least 1 pixel")
        vt.require(self, "turn_bonus", self.turn_bonus >= 0.0, "at least 0")

    # ------------------------------------------------------------------------------------------------ prompt and tools

    def frames_at_first(self, info: vt.VideoInfo) -> int:
        """Number of initial frames of this video."""
        return self.initial_frames_long if self._is_long(info) else self.initial_frames

    def frames_per_call(self, info: vt.VideoInfo) -> int:
        """Number of frames of a `choose_frames` call on this video."""
        return self.call_frames_long if self._is_long(info) else self.call_frames

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """Frames spread evenly from the first to the last."""
        size = self._choose_frames(info).frame_size(info, envelope)
        return vt.spread_frames(info, self.frames_at_first(info), size)

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then question, blank line and one line per frame."""
        initial_frames, call_frames = self.frames_at_first(info), self.frames_per_call(info)
        user = vt.render(self, "user", question=sample.question.rstrip(), frames=vt.numbered_frames(self, images))
        if self.answer_only:
            system = vt.render(self, "answer_only", initial_frames=str(initial_frames))
            return [vt.Message("system", system), vt.Message("user", user)]
        return vt.initial_messages(
            self,
            __package__,
            user,
            initial_frames=initial_frames,
            call_frames=call_frames,
            min_gap=call_frames + 1,
            max_turns=self.max_turns,
        )

    def message_templates(self) -> Mapping[str, vt.Template]:
        return _TEMPLATES

    def parse(self, text: str) -> vt.ParsedTurn:
        return grammar.parse_turn_reference(text) if self.compat == "reference" else grammar.parse_turn(text)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        return {
            ChooseFrames.name: self._choose_frames(info),
            GetFrameNumber.name: GetFrameNumber(compat=self.compat),
        }

    def _choose_frames(self, info: vt.VideoInfo) -> ChooseFrames:
        box = self.box_long if self._is_long(info) else self.box
        return ChooseFrames(num_frames=self.frames_per_call(info), box=box, compat=self.compat)

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """Frame lines, or the frame number in one sentence; nothing about time, rate or turns left (code)."""
        return vt.joined(map(self._observation, outcomes), ("\n",))

    def _observation(self, outcome: vt.ToolOutcome) -> vt.Content:
        record = outcome.record
        if not record.ok:  # read only with end_on_call_error=False
            return vt.render(self, "refusal", error=str(vt.format_error(record)))
        if record.name == grammar.GET_FRAME_NUMBER:
            number = str(record.result["frame_number"])
            return vt.render(self, "frame_number", time=str(record.arguments["time"]), number=number)
        frames = vt.with_text(outcome, vt.numbered_frames(self, outcome.images))
        return vt.render(self, "observation", frames=frames)

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """`accuracy`, `action_bonus` and `format`, weighted, and `ccv`.

        `ccv` is 1.0 if the rollout passed the verification, or if there was none. If it is 0.0, all other components
        are 0.0.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        findings = self._findings(trajectory)
        correct = await self._is_correct(findings.answer, sample, judge)
        if self.ccv and not findings.consistent:
            return self.no_components()
        has_bonus = correct or self.bonus_condition == "always"
        return {
            "accuracy": self.accuracy_reward if correct else 0.0,
            "action_bonus": self._action_bonus(findings, len(trajectory.turns), sample.question) if has_bonus else 0.0,
            "format": self.format_reward if trajectory.is_well_formed() else 0.0,
            "ccv": 1.0,
        }

    def verify(self, trajectory: vt.Trajectory) -> grammar.Verdict:
        """Cognitive Consistency Verification of a rollout under `ccv_profile`, from its executed calls."""
        if trajectory.video is None:
            return grammar.Verdict(ok=False, failed="structure", reason="the video was never opened")
        video, min_gap = trajectory.video, self.frames_per_call(trajectory.video)
        return grammar.verify_consistency(trajectory.turns, self.ccv_profile, min_gap, video.num_frames)

    def attempt(self, number: int, max_attempts: int) -> FrameThinker:
        """Verification in its inference profile; the last attempt uses the answer-only prompt on the same initial
        frames (paper 3.3.2, B.2; code's evaluation script, which makes three)."""
        return replace(self, ccv_profile="inference", answer_only=number == max_attempts)

    def attempt_fault(self, trajectory: vt.Trajectory) -> str | None:
        """Why an attempt does not count: it has no answer, or it is inconsistent (only with `ccv`); None if it
        counts."""
        if trajectory.answer is None:
            return "no answer"
        verdict = self.verify(trajectory)
        return f"{verdict.failed}: {verdict.reason}" if self.ccv and not verdict.ok else None

    def check_gradable(self, sample: vt.Sample, judge: object | None) -> None:
        """The check of every method. With `answer_grading="exact"` the truth must be a single word, too.

        Raises:
            UsageError: no answer could earn the reward.
        """
        super().check_gradable(sample, judge)
        if self._compares_words(sample) and len(sample.ground_truth.split()) > 1:
            raise vt.UsageError(
                f"answer_grading=exact compares the answer's first word with the truth, which is "
                f"{sample.ground_truth!r:.100}; make the truth one word, or set answer_grading=choice"
            )

    def _findings(self, trajectory: vt.Trajectory) -> grammar.Findings:
        if self.compat == "reference":
            transcript = "\n".join(text for turn in trajectory.turns for text in (turn.text, turn.observation or ""))
            assert trajectory.video is not None  # a rollout without one is lost
            return grammar.read_transcript(transcript, trajectory.video.num_frames)
        calls = trajectory.executed_calls()
        clocks = [call for call in calls if call.name == GetFrameNumber.name and call.result["frame_number"] > 0]
        return grammar.Findings(
            answer=trajectory.answer,
            consistent=self.verify(trajectory).ok,
            chose_frames=any(call.name == ChooseFrames.name for call in calls),
            times=tuple(str(call.arguments["time"]) for call in clocks),
        )

    def _action_bonus(self, findings: grammar.Findings, num_turns: int, question: str) -> float:
        if self.turn_bonus > 0.0:
            return min(self.turn_bonus * max(0, num_turns - 1), MAX_TURN_BONUS)
        bonus = self.choose_bonus if findings.chose_frames else 0.0
        return bonus + (self.time_bonus if self._time_counts(findings.times, question) else 0.0)

    def _time_counts(self, times: Sequence[str], question: str) -> bool:
        """Whether looking up these times is what `time_bonus_for` asks."""
        named = [match[0] for match in _TIME.finditer(question)]
        if self.time_bonus_for == "named_time":
            return not {_seconds(time) for time in times}.isdisjoint(map(_seconds, named))
        return bool(times) and (bool(named) or self.time_bonus_for == "any_question")

    async def _is_correct(self, answer: str | None, sample: vt.Sample, judge: vt.Judge | None) -> bool:
        if answer is None:
            return False
        if self._compares_words(sample):
            return answer.split(maxsplit=1)[0] == sample.ground_truth
        return await vt.grade_answer(answer, sample, judge) is vt.AnswerLabel.CORRECT

    def _compares_words(self, sample: vt.Sample) -> bool:
        """Whether an answer's first word is compared with the truth: the published rule, for options and numbers."""
        return self.answer_grading == "exact" and sample.question_type in ("mc", "numeric")

    def _is_long(self, info: vt.VideoInfo) -> bool:
        return info.duration_seconds > LONG_VIDEO_SECONDS


def _seconds(time: str) -> int:
    """Seconds of MM:SS or H:MM:SS; -1 for digits beyond any video's length."""
    if len(time) > 20:
        return -1
    seconds = 0
    for part in time.split(":"):
        seconds = 60 * seconds + int(part)
    return seconds
