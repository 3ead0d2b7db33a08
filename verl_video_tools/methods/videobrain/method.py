"""VideoBrain (arXiv 2602.04094): sample again, evenly or by a text, only where the initial frames do not suffice.

Sources named at the fields and constants: "paper" with its section; "code" is the published training code where the
paper is silent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videobrain import grammar
from verl_video_tools.video.resize import Aspect, size_in_box
from verl_video_tools.video.sampling import linspace_indices

logger = logging.getLogger(__name__)

Outcomes = tuple[float, float, float, float]
"""Values for a rollout that is right without a call, right with calls, wrong without a call, wrong with calls."""

ToolName = Literal["uniform_sample", "clip_sample"]

QuestionClass = Literal["direct", "adaptive", "active"]

CLASS_OF_LETTER: Mapping[str, QuestionClass] = {
    "a": "direct",
    "b": "direct",
    "e": "adaptive",
    "f": "active",
    "g": "active",
    "h": "active",
}
"""Classes by the letters of the published data. The letters c and d have no class, because the paper filters such rows
out."""

CLIP_CANDIDATES = (128, 256)
"""Number of frames that `clip_sample` compares with the prompt: in short ranges, and in long ones (paper 3.1)."""

RIGHT_FROM = 1.0
"""Least score of an answer, from 0 to 1, that counts as right for the behaviour reward (code)."""

_LAST = (
    "No call is left, so do not write <tool_call> again: think between <thinking> and </thinking>, then give your "
    "answer between <answer> and </answer> now."
)

LONG_RANGE_FRAMES = 20_000
"""Least number of frames of a long range (code). The published inference code says above 20,000, and the paper (3.1)
says videos above 20,000 frames."""


@dataclass(frozen=True, kw_only=True)
class _RangeTool:
    """What both agents share: they show `num_frames` frames of a range of frame numbers.

    Attributes:
        num_frames: frames shown per call.
        box: width and height in pixels that a frame is shown in, see `video.resize.size_in_box`.
        aspect: what becomes of frames of another shape than the box's.
        compat: `reference` always stretches frames, and reads numbers as `methods.toolkit.calls.read_frame_range` says.

    Raises:
        UsageError: a value is out of its range.
    """

    num_frames: int
    box: tuple[int, int]
    aspect: Aspect = "fit"
    compat: vt.Compat = "strict"

    def __post_init__(self) -> None:
        vt.require_at_least(self, 1, "num_frames")
        vt.require(self, "box", min(self.box) >= 1, "sides of at least 1 pixel")

    def most_expensive_call(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """A call for the whole video."""
        return vt.spread_frames(info, self.num_frames, self.frame_size(info, envelope))

    def frame_size(self, info: vt.VideoInfo, envelope: vt.PixelEnvelope) -> tuple[int, int]:
        """Width and height of a shown frame in pixels."""
        aspect: Aspect = "stretch" if self.compat == "reference" else self.aspect
        return size_in_box(info.width, info.height, *self.box, envelope, aspect)

    async def _plan_frames(
        self, context: vt.ToolContext, start: int, end: int, indices: tuple[int, ...], **said: str
    ) -> vt.ToolPlan:
        """Frames of the range [start, end). The result repeats the call as it was carried out, with its times."""
        times = await context.range_seconds(start, end - 1)
        return vt.ToolPlan(
            frames=vt.FrameRequest(*self.frame_size(context.info, context.envelope), indices=indices),
            result={"start_frame": start, "end_frame": end, **said, **times},
        )


@dataclass(frozen=True, kw_only=True)
class UniformSample(_RangeTool):
    """Shows frames spread evenly from `start_frame` to the frame before `end_frame`, both included. A range with fewer
    than `num_frames` frames is refused."""

    name: ClassVar[str] = grammar.UNIFORM_SAMPLE
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Look closer at a part of the video: shows a fixed number of frames spread evenly over a range of frame "
            "numbers, then lists their numbers and times in the order shown."
        ),
        parameters={
            "start_frame": ("number", "First frame of the range, from 0."),
            "end_frame": ("number", "Frame number before which the range ends; at most the number of frames."),
        },
        frame_label=vt.NUMBER_AND_TIME,
    )

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_frame": number, "end_frame": number}``. Other arguments are ignored.

        The result repeats the executed range, ``{"start_frame": int, "end_frame": int}``, with its times
        (`ToolContext.range_seconds`).

        Raises:
            CallRejected: `malformed_call`, `out_of_range`, `reversed_segment` or `segment_too_short`.
            VideoError: the presentation times of the file cannot be read.
        """
        start, end = vt.read_frame_range(arguments, context.info.num_frames, self.compat)
        if end - start < self.num_frames:
            raise vt.CallRejected(
                vt.CallErrorCode.SEGMENT_TOO_SHORT,
                f"{start} to {end} are {end - start} frames; "
                f"end_frame must be at least start_frame + {self.num_frames}",
            )
        return await self._plan_frames(context, start, end, linspace_indices(start, end - 1, self.num_frames))


@dataclass(frozen=True, kw_only=True)
class ClipSample(_RangeTool):
    """Shows the candidates that are most similar to `prompt`, in order of time (algorithm 1). A range with fewer frames
    shows all of them.

    Candidates are spread evenly over the range, including its first and its last frame. Their scores are not reported.

    Attributes:
        deadline_seconds: time for the search.
        compat: `reference` accepts a prompt that is not text, too.

    Raises:
        UsageError: a value is out of its range.
    """

    name: ClassVar[str] = grammar.CLIP_SAMPLE
    searches: ClassVar[bool] = True
    description: ClassVar[vt.ToolDescription] = vt.ToolDescription(
        name=name,
        description=(
            "Search a part of the video for pictures that look like a text: shows the best few frames in order of "
            "time, then lists their numbers and times in the order shown."
        ),
        parameters={
            "start_frame": ("number", "First frame of the range that is searched, from 0."),
            "end_frame": ("number", "Frame number before which the range ends; at most the number of frames."),
            "prompt": ("string", "What can be seen in the frames looked for, in a few words."),
        },
        frame_label=vt.NUMBER_AND_TIME,
    )

    deadline_seconds: float

    def __post_init__(self) -> None:
        super().__post_init__()
        most = min(CLIP_CANDIDATES)
        vt.require(self, "num_frames", self.num_frames <= most, f"at most {most}, the candidates of a short range")
        vt.require(self, "deadline_seconds", self.deadline_seconds > 0.0, "above 0")

    async def plan(self, arguments: Mapping[str, Any], context: vt.ToolContext) -> vt.ToolPlan:
        """Frames for ``{"start_frame": number, "end_frame": number, "prompt": str}``. Other arguments are ignored.

        The result repeats the executed call, ``{"start_frame": int, "end_frame": int, "prompt": str}``, with the times
        of the range (`ToolContext.range_seconds`).

        Raises:
            CallRejected: `malformed_call`, `out_of_range` or `reversed_segment`.
            RetrievalError: the search failed, or the run has no retriever.
            VideoError: the candidates cannot be decoded, or the presentation times of the file cannot be read.
        """
        start, end = vt.read_frame_range(arguments, context.info.num_frames, self.compat)
        prompt = self._prompt(arguments)
        if context.retriever is None:
            raise vt.RetrievalError("no retriever is set up: clip_sample finds frames by text and needs one")
        best = await context.retriever.best_frames(
            context.sample.video_path,
            self.candidates(start, end),
            prompt,
            self.num_frames,
            self.deadline_seconds,
        )
        return await self._plan_frames(context, start, end, tuple(sorted(best)), prompt=prompt)

    def candidates(self, start: int, end: int) -> tuple[int, ...]:
        """Frames of the range [start, end) that are compared with the text."""
        count = CLIP_CANDIDATES[end - start >= LONG_RANGE_FRAMES]
        return linspace_indices(start, end - 1, min(count, end - start))

    def _prompt(self, arguments: Mapping[str, Any]) -> str:
        value = arguments.get("prompt")
        is_taken = isinstance(value, str) or (self.compat == "reference" and value is not None)
        prompt = str(value).strip() if is_taken else ""
        if not prompt:
            raise vt.CallRejected(
                vt.CallErrorCode.MALFORMED_CALL, f"prompt must say in a few words what to look for, got {value!r:.80}"
            )
        return prompt


# ----------------------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True, kw_only=True)
class VideoBrain(vt.Method):
    """VideoBrain's protocol, tools, prompt and reward. The defaults are those of the paper's reinforcement-learning
    stage.

    Rows name the class of their question in `extra_info.classification`: direct (the initial frames suffice), adaptive
    (calls may help) or active (calls are needed), or a letter of `CLASS_OF_LETTER`.
    """

    name: ClassVar[str] = "videobrain"
    reward_components: ClassVar[tuple[str, ...]] = ("accuracy", "format", "behavior")
    thought_tag: ClassVar[str | None] = "thinking"
    recipe_budget: ClassVar[vt.RolloutLimits] = vt.RolloutLimits(prompt_tokens=8192, response_tokens=16_384, images=56)
    oracle: ClassVar[str | None] = "verl_video_tools.methods.videobrain.oracle:VideoBrainOracle"
    tool_descriptions: ClassVar[tuple[vt.ToolDescription, ...]] = (UniformSample.description, ClipSample.description)
    synthetic_question: ClassVar[str | None] = "verl_video_tools.methods.videobrain.oracle:words_by_frames"

    max_turns: int = 6
    """Largest number of assistant turns: five rounds of sampling (paper 4.1) and the answer."""
    max_turn_tokens: int | None = 8192
    """Largest number of tokens generated in one turn (code)."""

    tool_names: tuple[ToolName, ...] = ("uniform_sample", "clip_sample")
    """Tools of the method, which the prompt describes. One of the two alone is an ablation of paper 4.3."""
    initial_frames: int = 16
    """Number of initial frames (paper 4.1)."""
    call_frames: int = 8
    """Number of frames that `uniform_sample` shows, and the least length of its range (paper 4.1; code)."""
    clip_frames: int = 4
    """Number of frames that `clip_sample` shows (paper 4.1)."""
    box: tuple[int, int] = (640, 360)
    """Width and height in pixels for the size of a frame, see `aspect` (code)."""
    aspect: Aspect = "fit"
    """`fit`: a frame is shrunk to fit into the box (published inference code). `stretch`: a frame gets the shape of the
    box, whatever its own (published training code, therefore always with `compat="reference"`)."""

    accuracy_reward: float = 1.0
    """Reward of a correct answer; a partly correct answer earns half of it (paper 3.3: a score from 0 to 1)."""
    format_reward: float = 0.05
    """Reward of a rollout that passes the format gate. A rollout that does not pass it earns nothing at all (paper
    3.3)."""
    format_gate: bool = True
    """False: the answer counts whatever the format of the rollout, and the format earns nothing (ablation of paper
    4.3)."""
    direct_behavior: Outcomes = (0.5, 0.0, 0.0, 0.0)
    """What a rollout on a direct question earns if it is right without a call, right with calls, wrong without a call,
    wrong with calls (paper table 1; the values are those of the code, because the table's numbers are missing in the
    text that we have)."""
    adaptive_behavior: Outcomes = (0.5, 0.5, 0.0, 0.0)
    """The same for an adaptive question."""
    active_behavior: Outcomes = (0.0, 0.5, 0.0, 0.2)
    """The same for an active question."""

    def check_fields(self) -> None:
        vt.require_at_least(self, 1, "initial_frames", "call_frames", "clip_frames")
        names = self.tool_names
        vt.require(self, "tool_names", len(set(names)) == len(names) > 0, "one or both of uniform_sample, clip_sample")
        most = min(CLIP_CANDIDATES)
        vt.require(self, "clip_frames", self.clip_frames <= most, f"at most {most}, the candidates of a short range")
        vt.require(self, "box", min(self.box) >= 1, "sides of at least 1 pixel")

    @property
    def searches(self) -> bool:
        return ClipSample.name in self.tool_names

    # ------------------------------------------------------------------------------------------------ prompt and tools

    def plan_initial_frames(self, info: vt.VideoInfo, sample: vt.Sample, envelope: vt.PixelEnvelope) -> vt.FrameRequest:
        """Frames spread evenly from the first to the last."""
        return vt.spread_frames(info, self.initial_frames, self._uniform_sample().frame_size(info, envelope))

    def prompt(self, sample: vt.Sample, info: vt.VideoInfo, images: Sequence[vt.ImagePart]) -> list[vt.Message]:
        """The system prompt; then question, number and rate of frames, and one line per frame."""
        rate = str(info.average_fps) if self.compat == "reference" else f"{info.average_fps:.5g}"
        user = vt.render(
            self,
            "user",
            question=sample.question.rstrip(),
            num_frames=str(info.num_frames),
            fps=rate,
            frames=vt.numbered_frames(self, images),
        )
        return vt.initial_messages(
            self,
            __package__,
            user,
            tools="\n\n".join(vt.load_prompt(__package__, f"prompt_{name}.txt", None) for name in self.tool_names),
            initial_frames=self.initial_frames,
            call_frames=self.call_frames,
            clip_frames=self.clip_frames,
            max_calls=self.max_turns - 1,
        )

    def message_templates(self) -> Mapping[str, vt.Template]:
        """The templates whose names end in `_last` are read when no call is left."""
        again = (
            "Think between <thinking> and </thinking>, then answer between <answer> and </answer>, or call a tool "
            f"again with another range{' or prompt' if self.searches else ''}."
        )
        return {
            "user": vt.Template(
                "{question}\n\nThe video has {num_frames} frames at {fps} frames per second.\n\n{frames}",
                once=("question", "frames"),
                optional=("num_frames", "fps"),
            ),
            **vt.FRAME_TEMPLATES,
            "observation": vt.Template(f"The frames of your call. {again}\n{{frames}}", once=("frames",)),
            "observation_last": vt.Template(f"The frames of your call. {_LAST}\n{{frames}}", once=("frames",)),
            "refusal": vt.Template(f"Error: {{error}}\n{again}", optional=("error",)),
            "refusal_last": vt.Template(f"Error: {{error}}\n{_LAST}", optional=("error",)),
        }

    def parse(self, text: str) -> vt.ParsedTurn:
        return grammar.parse_turn_reference(text) if self.compat == "reference" else grammar.parse_turn(text)

    def tools(self, info: vt.VideoInfo) -> Mapping[str, vt.Tool]:
        clip_sample = ClipSample(
            num_frames=self.clip_frames,
            box=self.box,
            aspect=self.aspect,
            compat=self.compat,
            deadline_seconds=self.tool_deadline_seconds,
        )
        tools: Sequence[vt.Tool] = (self._uniform_sample(), clip_sample)
        return {tool.name: tool for tool in tools if tool.name in self.tool_names}

    def _uniform_sample(self) -> UniformSample:
        return UniformSample(num_frames=self.call_frames, box=self.box, aspect=self.aspect, compat=self.compat)

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        """The frames of the call, or the reason why there are none. Before the last turn, the message says that no call
        is left."""
        outcome = outcomes[0]  # several only where all were refused for being several
        last = "_last" if turns_left <= 1 else ""
        if not outcome.record.ok:
            return vt.render(self, f"refusal{last}", error=str(vt.format_error(outcome.record)))
        frames = vt.with_text(outcome, vt.numbered_frames(self, outcome.images))
        return vt.render(self, f"observation{last}", frames=frames)

    # ---------------------------------------------------------------------------------------------------------- reward

    async def components(
        self, trajectory: vt.Trajectory, sample: vt.Sample, judge: vt.Judge | None
    ) -> dict[str, float]:
        """`accuracy`, `format` and `behavior` (paper 3.3).

        All are 0 if there is a format gate and the rollout does not pass it. The judge is then not asked.

        Raises:
            JudgeError: the judge gave no verdict.
        """
        gate = self.gate(trajectory)
        if gate.fault is not None:
            return self.no_components()
        score = await vt.answer_score(gate.answer, sample, judge)
        return {
            "accuracy": self.accuracy_reward * score,
            "format": self.format_reward if self.format_gate else 0.0,
            "behavior": self.behavior(sample, score >= RIGHT_FROM, gate.num_calls > 0),
        }

    def gate(self, trajectory: vt.Trajectory) -> grammar.GateFindings:
        """Whether a rollout follows the rules of the format: by its record, or with `compat="reference"` by its text.
        Without a gate every rollout passes, and answer and calls are those of the record."""
        if not self.format_gate:
            return grammar.GateFindings(None, trajectory.answer, len(trajectory.executed_calls()))
        if self.compat == "reference":
            return grammar.reference_text_gate([(turn.text, turn.observation or "") for turn in trajectory.turns])
        return grammar.record_gate(trajectory)

    def check_gradable(self, sample: vt.Sample, judge: object | None) -> None:
        """The check of every method. If behaviour is paid, the row must name the class of its question, too.

        Raises:
            UsageError: no rollout could earn what the method pays.
        """
        super().check_gradable(sample, judge)
        pays_behavior = any(map(any, (self.direct_behavior, self.adaptive_behavior, self.active_behavior)))
        label, question_class = self._read_class(sample)
        if pays_behavior and question_class is None:
            raise vt.UsageError(
                f"extra_info.classification {label!r:.80} is no class, so behaviour earns nothing; write direct, "
                "adaptive or active (`vvt data classify` finds which), or train without: set direct_behavior, "
                "adaptive_behavior and active_behavior to [0,0,0,0]"
            )

    def behavior(self, sample: vt.Sample, is_right: bool, has_called: bool) -> float:
        """The behaviour reward of a rollout, by the class of its question. A row without a class earns nothing."""
        label, question_class = self._read_class(sample)
        if question_class is None:
            _warn_of_class(label)
            return 0.0
        outcomes: Outcomes = getattr(self, f"{question_class}_behavior")
        right_uncalled, right_called, wrong_uncalled, wrong_called = outcomes
        if is_right:
            return right_called if has_called else right_uncalled
        return wrong_called if has_called else wrong_uncalled

    def _read_class(self, sample: vt.Sample) -> tuple[str, QuestionClass | None]:
        """What a row names as the class of its question, and that class. Names of classes are ours; the published code
        knows only letters."""
        value = sample.extra_info.get("classification")
        label = "" if value is None else str(value).strip().lower()
        names: dict[str, QuestionClass] = {"direct": "direct", "adaptive": "adaptive", "active": "active"}
        classes = CLASS_OF_LETTER if self.compat == "reference" else {**CLASS_OF_LETTER, **names}
        return label, classes.get(label)


@cache
def _warn_of_class(label: str) -> None:
    """Once per process and label."""
    logger.warning(
        "rows with extra_info.classification %r earn nothing for their behaviour; it should be direct, adaptive or "
        "active, or one of the letters %s",
        label,
        ", ".join(CLASS_OF_LETTER),
    )
