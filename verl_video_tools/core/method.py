"""What a method is."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, reduce
from operator import add
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from verl_video_tools.core.config import checked_fields, require
from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.frames import FrameRequest, PixelEnvelope, VideoInfo
from verl_video_tools.core.messages import Content, ImagePart, Message
from verl_video_tools.core.prompts import Template, check_templates, prompt_digest
from verl_video_tools.core.sample import Sample, check_question
from verl_video_tools.core.services import Judge
from verl_video_tools.core.tool import Tool, ToolDescription, load_selector
from verl_video_tools.core.trajectory import ParsedTurn, StopReason, ToolOutcome, Trajectory

Compat = Literal["strict", "reference"]

ContextPolicy = Literal["append", "last_evidence", "initial_plus_last"]
"""What of a rollout's images a later turn still sees: all; only those of the last observation; these and the initial
frames. Texts stay in every case."""


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Tokens and images that one rollout takes, or may take."""

    prompt_tokens: int
    response_tokens: int
    images: int


def paid_score(components: Mapping[str, float], unpaid: Collection[str]) -> float:
    """The sum of the components that are not in `unpaid`."""
    # sum() rounds floats differently from Python 3.12 on; a reward is the same on every Python.
    return reduce(add, (value for name, value in components.items() if name not in unpaid), 0.0)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method of the literature as one frozen config: grammar, tools, loop policy, prompt and reward.

    The agent loop, `replay`, data export and evaluation know methods only through this class. Fields are the knobs;
    their defaults are the paper's.

    The fields of one rollout may differ from the run's (`for_session`). Such fields are in its record, whence rows for
    fine-tuning take them. What rows and records may set is what a rollout may have of its own: fields whose type is a
    number, a flag, a `Literal`, or a tuple or union of these (`core.method.rollout_fields`). A field of any other
    type, such as a text, could name code or a file: it is set by the user's configuration alone, for the whole run.
    """

    name: ClassVar[str]
    reward_components: ClassVar[tuple[str, ...]]
    """Names of the breakdown that `score` returns beside `score` itself, in every case. A method whose file says which
    (`methods.compose`) gives each config its own, so read this, the next one, `recipe_budget` and `thought_tag` from a
    config and not from its class."""
    group_components: ClassVar[tuple[str, ...]] = ()
    """Those of `reward_components` that a rollout earns only beside its siblings: `score_group` returns them, and
    `components` does not. Without siblings each is 0."""
    unpaid_components: ClassVar[tuple[str, ...]] = ()
    """Those of `reward_components` that say something of the rollout and are no part of the sum."""
    recipe_budget: ClassVar[RolloutLimits]
    """What the method's recipe reserves; `replay` applies it when it is given a processor. Every method has one, and
    `vvt plan` and the recipes read their lengths from it."""
    thought_tag: ClassVar[str | None] = "think"
    """Tag of the thought that the grammar begins a turn with; None where it knows none. It distinguishes a model's
    native reasoning from the method's own thought (`core.reasoning`)."""
    stop: ClassVar[tuple[str, ...]] = ()
    """Stop strings that end a turn (kept in the text); part of the grammar."""

    oracle: ClassVar[str | None] = None
    """Python path `module:Class` of the method's oracle policy in the synthetic world (`methods.toolkit.oracle`), if
    there is one."""
    synthetic_question: ClassVar[str | None] = None
    """Python path `module:function` of what puts a question of the synthetic world in the method's words, such as
    `synthetic.seconds:frames_in_seconds`; None: as it is, with frame numbers."""
    tool_descriptions: ClassVar[tuple[ToolDescription, ...]] = ()
    """Of the tools that verl's own loop may be given (`tools.stock`)."""

    accuracy_reward: float = 1.0
    """What a correct answer adds to the reward, as its component `accuracy`."""
    max_turns: int
    """Assistant turns at most; a call in the last one is refused (`turn_limit`)."""
    max_turn_tokens: int | None = None
    """Tokens that the policy may generate in one turn; None leaves it to the response budget."""
    end_on_call_error: bool = True
    """True: a refused call ends the rollout (`invalid_action`). False: the model reads the error and goes on."""
    tool_deadline_seconds: float = 300.0
    """Time that the initial frames, or one call, may take before it is recorded as failed, waiting for the decodes of
    other rollouts included: 512 frames of an hour of video take more than a minute. Too short a time is a silent bias:
    the rollouts that it flags are those on the longest videos."""
    initial_frames_selector: str | None = None
    """A `FrameSelector` that chooses the frames shown with the question: `most_similar`, which takes those most like
    it, or the Python path `module:function` of another one. None: the method's own frames."""
    prompt_file: str | None = None
    """Path of a system prompt that replaces the packaged one; same placeholders. Read once per process."""
    templates_file: str | None = None
    """Path of a TOML file of message templates that replace the packaged ones (docs/templates.md)."""
    compat: Compat = "strict"
    """`reference` scores and executes as the published code does; the method's page lists every difference."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """What the base class checks for every method, no method can forget.

        Raises:
            TypeError: the class overrides `__post_init__` or `score`, and the message names what to override instead;
                or a name in `group_components` is not one of `reward_components`, or nothing scores them.
        """
        super().__init_subclass__(**keywords)
        for name, instead in {"__post_init__": "check_fields", "score": "components"}.items():
            if name in vars(cls):
                raise TypeError(f"{cls.__name__} overrides Method.{name}; override {instead} instead")
        if unknown := sorted(set(cls.group_components) - set(getattr(cls, "reward_components", ()))):
            raise TypeError(f"{cls.__name__}.group_components has {unknown}, which reward_components lacks; add them")
        if cls.group_components and cls.score_group is Method.score_group:
            raise TypeError(f"{cls.__name__} has group_components, and no score_group that returns them")

    def __post_init__(self) -> None:
        if not hasattr(self, "recipe_budget"):
            raise UsageError(
                f"{type(self).__name__} has no recipe_budget; write this class attribute, "
                "RolloutLimits(prompt_tokens=..., response_tokens=..., images=...)"
            )
        require(self, "max_turns", self.max_turns >= 1, "at least 1")
        limit = self.max_turn_tokens
        require(self, "max_turn_tokens", limit is None or limit >= 1, "at least 1, or None")
        if self.initial_frames_selector is not None:
            load_selector(self.initial_frames_selector)
        require(self, "tool_deadline_seconds", self.tool_deadline_seconds > 0, "above 0")
        check_templates(self)
        prompt_digest(self.prompt_file)  # reads the file once, so that one that cannot be read fails before a run
        self.check_fields()

    def check_fields(self) -> None:  # noqa: B027 (a method without ranges needs none)
        """Check the ranges of the method's own fields, by `core.config.require`.

        Raises:
            UsageError: a value is out of its range.
        """

    # ---------------------------------------------------------------------------------------- what the model sees first

    @abstractmethod
    def plan_initial_frames(self, info: VideoInfo, sample: Sample, envelope: PixelEnvelope) -> FrameRequest:
        """Frames shown with the question."""

    @abstractmethod
    def prompt(self, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
        """System and user messages that start the rollout.

        Called before `images` are decoded: they come without pixels, which take their places later. Called again only
        where other frames stand in for damaged ones.
        """

    def message_templates(self) -> Mapping[str, Template]:
        """The texts of the messages that this config writes by `core.prompts.render`, by name; `templates_file`
        may replace each."""
        return {}

    # -------------------------------------------------------------------------------------------------- turns and calls

    @abstractmethod
    def parse(self, text: str) -> ParsedTurn:
        """Read one assistant turn. Never raises."""

    @abstractmethod
    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        """The tools of a rollout on this video, by the name that calls carry."""

    def continues_after(self, parsed: ParsedTurn) -> bool:
        """Whether a turn without an answer asks for another one. Where it does not, its calls are not carried out."""
        return bool(parsed.calls)

    @abstractmethod
    def observe(self, outcomes: Sequence[ToolOutcome], turns_left: int) -> Content:
        """The user message that answers a turn's calls, of which there may be none where `continues_after` says so.

        Called before images are decoded, as `prompt` is; and again where a call is refused for a budget, or fails.
        """

    def ends_on_budget(self) -> bool:
        """Whether an observation that does not fit ends the rollout. If not, the model reads a refusal in its place."""
        return self.end_on_call_error

    def stop_reason_after(self, trajectory: Trajectory) -> StopReason | None:
        """Asked once a turn's calls are answered, the last turn being this one: why no further turn follows, if so."""
        return None

    def context_policy(self) -> ContextPolicy:
        """What of earlier turns the next one sees; anything but `append` makes one training sequence per turn."""
        return "append"

    # ----------------------------------------------------------------------------------------------------------- reward

    async def score(self, trajectory: Trajectory, sample: Sample, judge: Judge | None = None) -> dict[str, float]:
        """Reward of a finished rollout: ``{"score": float, **components}`` with all `reward_components` present.

        `score` is the sum of the components but for `unpaid_components`. A rollout that was lost (`Trajectory.is_lost`)
        earns nothing.

        Raises:
            UsageError: the question needs a judge and there is none; see `core.sample.check_question`.
            JudgeError: the judge gave no verdict.
        """
        self.check_sample(sample, judge)
        if trajectory.is_lost():
            return zero_reward(self)
        components = await self.components(trajectory, sample, judge)
        if set(components) != set(expected := self.no_components()):
            raise TypeError(
                f"{type(self).__name__}.components gave {sorted(components)}, and reward_components are "
                f"{sorted(expected)}"
            )
        components = {**components, **dict.fromkeys(self.group_components, 0.0)}  # of a rollout without siblings
        return {"score": paid_score(components, self.unpaid_components), **components}

    @abstractmethod
    async def components(self, trajectory: Trajectory, sample: Sample, judge: Judge | None) -> dict[str, float]:
        """What a rollout that was not lost earns, weighted: a value for each of `reward_components`, except for the
        `group_components`.

        Raises:
            JudgeError: the judge gave no verdict.
        """

    def no_components(self) -> dict[str, float]:
        """What `components` returns for a rollout that earns nothing."""
        return dict.fromkeys((name for name in self.reward_components if name not in self.group_components), 0.0)

    def acc(self, reward: Mapping[str, float], sample: Sample) -> float:
        """verl's metric `acc` of a rollout: whether its answer is right. A partly right one is not.

        Args:
            reward: what `score` has returned.
        """
        return float(0.0 < self.accuracy_reward <= reward.get("accuracy", 0.0))

    def check_sample(self, sample: Sample, judge: object | None) -> None:
        """Say, before or after a rollout, that its answer could not be graded.

        Raises:
            UsageError: as `core.sample.check_question`, whose rules are those of every method that grades answers
                by the type of their question.
        """
        check_question(sample, judge)

    def check_gradable(self, sample: Sample, judge: object | None) -> None:
        """Say, before training, that no rollout on a row could earn all that its answer is paid for.

        `vvt data validate` and the start of a run ask every row's own method. A method that compares an answer with
        anything but `grading.answers`, or pays by a further field of the row, adds its own question here.

        Raises:
            UsageError: as `check_sample`, or there is no truth.
        """
        if not sample.ground_truth.strip():
            raise UsageError("reward_model.ground_truth is empty")
        self.check_sample(sample, judge)

    # ----------------------------------------------------------------------------------------------------------- groups

    def for_session(self, session_id: int, group_size: int, validate: bool) -> Method:
        """The config of one rollout of a group, where the rollouts of a group differ by design: this one with other
        values in some of `core.method.rollout_fields`.

        Args:
            session_id: number of the rollout in its group, from 0.
            group_size: rollouts of a group.
            validate: the rollout is for validation, not for training.
        """
        return self

    def score_group(
        self, trajectories: Sequence[Trajectory], rewards: Sequence[Mapping[str, float]], sample: Sample
    ) -> Sequence[Mapping[str, float]]:
        """What the rollouts of a group earn by comparison: for each the `group_components`, weighted.

        Called once per training group, after its last rollout has been scored and before dynamic sampling, metrics and
        advantages read any reward. It is called on the run's method; a rollout's own fields are in
        `Trajectory.settings`. It runs in the agent loop worker, so it should take milliseconds, not seconds.

        Args:
            trajectories: two or more, in order of their number in the group. Flagged and lost rollouts are left out.
            rewards: of each of them: `score` and all `reward_components` as `Method.score` gave them, `acc`.
            sample: the question.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------------- other questions than one about one video

    def picture_prompt(self, question: str, images: Sequence[ImagePart]) -> list[Message]:
        """Messages that ask on a row without a video: about its pictures, which come without pixels before they are
        decoded, or where there are none about nothing but the question. No video: no tools.

        Raises:
            UsageError: the method has none.
        """
        raise UsageError(f"{self.name} does not ask about pictures; such rows are for methods with a `picture_prompt`")

    @property
    def asks_about_several_videos(self) -> bool:
        """Whether it has `plan_videos` and `videos_prompt`."""
        return False

    def plan_videos(self, infos: Sequence[VideoInfo], sample: Sample, envelope: PixelEnvelope) -> list[FrameRequest]:
        """Frames shown with the question in a row with several videos: requests with their `video`, from 0.

        Raises:
            UsageError: the method does not ask about several.
        """
        raise UsageError(f"{self.name} does not ask about several videos")

    def videos_prompt(self, sample: Sample, infos: Sequence[VideoInfo], images: Sequence[ImagePart]) -> list[Message]:
        """Messages that start a rollout on several videos; as `Method.prompt`. The images are those of `plan_videos` in
        their order, and each record has its `video`.

        Raises:
            UsageError: the method does not ask about several.
        """
        raise UsageError(f"{self.name} does not ask about several videos")

    # ----------------------------------------------------------------------------------------------------- asking again

    def verification_frames(self, trajectory: Trajectory) -> FrameRequest | None:
        """Once the rollout has answered: the frames from which the policy is asked once more; None: do not ask.

        That request has a prompt of its own (`verification_prompt`). No text of the rollout is in it, so that the reply
        rests on the frames alone. It is sampled from the same weights, and is part of no training sequence. Its record
        is `Trajectory.verification`, which `components` may pay for.
        """
        return None

    def verification_prompt(self, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
        """The whole request. Called before images are decoded, as `Method.prompt` is."""
        raise NotImplementedError(f"{self.name} has verification_frames, and no verification_prompt")

    def attempt(self, number: int, max_attempts: int) -> Method:
        """The config of one of several attempts at a question, where the method's authors evaluate so.

        Args:
            number: of the attempt, from 1.
            max_attempts: that there may be, more than 1.

        Raises:
            UsageError: they make one.
        """
        raise UsageError(f"{self.name} makes one attempt at a question: leave --attempts out")

    def attempt_fault(self, trajectory: Trajectory) -> str | None:
        """Why one of several attempts does not count, so that another is made; None where it does."""
        return None

    # ----------------------------------------------------------------- what a run and its records must know of a config

    @property
    def searches(self) -> bool:
        """A tool of this config finds frames by text, which takes a retriever (docs/retrieval.md)."""
        return False

    @property
    def asks_model(self) -> bool:
        """A tool of this config asks a model, which takes one that is set up (docs/tools.md)."""
        return False

    @property
    def initial_frames_as_video(self) -> bool:
        """The initial frames are sent as one video, in order, to an endpoint that takes it."""
        return False

    @property
    def label(self) -> str:
        """What tables call this config, where the name does not tell methods apart that a reader would compare."""
        return self.name

    def provenance(self) -> dict[str, Any] | None:
        """What records say of a config whose name does not tell its parts: names of its reward components, `rewards`,
        and of its tools, `tools`, and whatever else identifies it. None where the name tells all."""
        return None


def zero_reward(method: Method) -> dict[str, float]:
    """What `Method.score` returns of a rollout that earns nothing."""
    return {"score": 0.0, **dict.fromkeys(method.reward_components, 0.0)}


@cache
def rollout_fields(method_class: type[Method]) -> frozenset[str]:
    """The fields that may differ from rollout to rollout, and that rows and records may set: numbers, flags, choices
    among given words, and tuples of them.

    A text of any other kind could name code or a file, so it is the user's own configuration that sets it, for the
    whole run. That holds for every field of a type not known to be harmless, in every method.
    """
    annotations = get_type_hints(method_class)
    return frozenset(field.name for field in fields(method_class) if _is_closed(annotations[field.name]))


def _is_closed(annotation: Any) -> bool:
    """Whether a value of this type can be neither a path nor the name of code."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return True
    if origin is tuple or origin in (Union, types.UnionType):
        return all(_is_closed(argument) for argument in arguments if argument is not Ellipsis)
    return annotation in (bool, int, float, type(None))


def method_of_rollout(run: Method, settings: Mapping[str, Any]) -> Method:
    """The method of one rollout: the run's, with the fields that were the rollout's own.

    Every reader of recorded rollouts goes through here: reward, metrics, replay, export, fine-tuning.

    Args:
        run: from the user's configuration.
        settings: `Trajectory.settings`, from a record or a row.

    Raises:
        UsageError: a field does not exist, may not be set for one rollout (`rollout_fields`), or its value is wrong.
    """
    if not settings:
        return run
    of_the_run = {field.name for field in fields(run)} - rollout_fields(type(run))
    if refused := sorted(settings.keys() & of_the_run):
        raise UsageError(
            f"a rollout's settings may not hold {', '.join(refused)} of {type(run).__name__}: what can name code or a "
            f"file is taken from your own configuration alone. Take it out of the settings, and set it there (--set, "
            f"or video_tools.{run.name}) if you want it"
        )
    return replace(run, **checked_fields(type(run), settings))


def rollout_overrides(method: Method, run: Method) -> dict[str, Any]:
    """The fields in which the method of one rollout differs from the run's: `Trajectory.settings`.

    Raises:
        UsageError: one of them may not differ (`rollout_fields`).
    """
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    different = {name: value for name, value in values.items() if value != getattr(run, name)}
    method_of_rollout(run, different)
    return different
