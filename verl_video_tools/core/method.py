"""What a method is."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, reduce
from operator import add
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

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

ContextPolicy = Callable[[Sequence[Message]], Sequence[Message]]
"""Takes the dialogue so far (the prompt, then turns of the assistant and the user messages that answer them), and
returns the messages that the next turn sees. The rules are at `Method.context_policy`."""


def append(dialogue: Sequence[Message]) -> Sequence[Message]:
    """The context policy under which a turn sees the whole dialogue."""
    return dialogue


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Number of tokens and images of one rollout, or their upper bounds."""

    prompt_tokens: int
    response_tokens: int
    images: int


def summed(values: Iterable[float]) -> float:
    """The sum from left to right: `sum` rounds floats differently from Python 3.12 on, and a reward is the same on
    every Python."""
    return reduce(add, values, 0.0)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method of the literature as one frozen config: grammar, tools, loop policy, prompt and reward.

    The agent loop, `replay`, data export and evaluation know methods only through this class. Fields are the options
    of the method; their defaults are the paper's.

    A rollout may have other values than the run in some fields (`for_session`). Its record holds these values, and rows
    for fine-tuning take them from the record. Rows and records may set only fields whose type is a number, a flag, a
    `Literal`, or a tuple or union of these (`core.method.rollout_fields`). A field of any other type, such as a text,
    could name code or a file. Only the user's configuration sets such a field, for the whole run.
    """

    name: ClassVar[str]
    reward_components: ClassVar[tuple[str, ...]]
    """Names of the components that `score` always returns beside the score itself. `methods.compose` reads them from a
    file, so that they differ between its configs. Read this attribute, the next one, `recipe_budget` and `thought_tag`
    from a config and not from its class."""
    group_components: ClassVar[tuple[str, ...]] = ()
    """The reward components that compare a rollout with the rest of its group: `score_group` returns them, and
    `components` does not. Each is 0 for a rollout outside a group."""
    turn_components: ClassVar[tuple[str, ...]] = ()
    """The reward components that pay single turns: `components` returns one number per turn for each of them. They are
    not added to the score. What a turn earns raises the advantage of the tokens of this turn and of those before it
    (docs/decisions/credit-per-turn.md)."""
    turn_discount: ClassVar[float] = 1.0
    """The factor by which what a turn earns counts less for each turn before it, from 0 to 1."""
    unpaid_components: ClassVar[tuple[str, ...]] = ()
    """The reward components that describe the rollout and are not added to the score."""
    recipe_budget: ClassVar[RolloutLimits]
    """Tokens and images that the method's recipe reserves. Every method has one: `vvt estimate` and the recipes read
    their lengths from it, and `replay` applies it where a processor is named."""
    thought_tag: ClassVar[str | None] = "think"
    """Tag of the thought with which the grammar begins a turn; None for a grammar without thoughts. It distinguishes a
    model's native reasoning from the thought of the method (`core.reasoning`)."""
    stop: ClassVar[tuple[str, ...]] = ()
    """Stop strings, which end a turn and stay in its text."""

    oracle: ClassVar[str | None] = None
    """Python path `module:Class` of the oracle policy in the synthetic world (`methods.toolkit.oracle`), if there is
    one."""
    synthetic_question: ClassVar[str | None] = None
    """Python path `module:function` of a function that rewords a question of the synthetic world for the method, for
    example `synthetic.seconds:frames_in_seconds`; None: the question keeps its frame numbers."""
    tool_descriptions: ClassVar[tuple[ToolDescription, ...]] = ()
    """Descriptions of the tools for verl's own tool loop (`tools.stock`)."""

    accuracy_reward: float = 1.0
    """Reward of a correct answer, in the component `accuracy`."""
    max_turns: int
    """Upper bound of assistant turns; a call in the last one is refused (`turn_limit`)."""
    max_turn_tokens: int | None = None
    """Upper bound of the tokens that the policy generates in one turn; None: only the response budget limits it."""
    end_on_call_error: bool = True
    """True: a refused call ends the rollout (`invalid_action`). False: the model reads the error and continues."""
    tool_deadline_seconds: float = 300.0
    """Deadline of the initial frames and of each call, which includes the wait for decodes of other rollouts: 512
    frames of an hour of video take more than a minute. A deadline that is too short is a silent bias, because it flags
    the rollouts on the longest videos."""
    initial_frames_selector: str | None = None
    """A `FrameSelector` that chooses the initial frames: `most_similar`, which takes the frames most similar to the
    question, or the Python path `module:function` of another selector. None: the method chooses them."""
    prompt_file: str | None = None
    """Path of a system prompt that replaces the packaged one; same placeholders. Read once per process."""
    templates_file: str | None = None
    """Path of a TOML file of message templates that replace the packaged ones (docs/templates.md)."""
    compat: Compat = "strict"
    """`reference` scores and executes as the published code does; the method's page lists every difference."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Check the class itself.

        Raises:
            TypeError: the class overrides `__post_init__` or `score`, and the message names the method to override
                instead; or a name in `group_components` is not one of `reward_components`, or the class has
                `group_components` and no `score_group`.
        """
        super().__init_subclass__(**keywords)
        for name, instead in {"__post_init__": "check_fields", "score": "components"}.items():
            if name in vars(cls):
                raise TypeError(f"{cls.__name__} overrides Method.{name}; override {instead} instead")
        for kind in ("group_components", "turn_components"):
            if unknown := sorted(set(getattr(cls, kind)) - set(getattr(cls, "reward_components", ()))):
                raise TypeError(f"{cls.__name__}.{kind} has {unknown}, which reward_components lacks; add them")
        if both := sorted(set(cls.group_components) & set(cls.turn_components)):
            raise TypeError(f"{cls.__name__} has {both} in group_components and in turn_components; choose one")
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
        """Check the ranges of the fields that the subclass adds, by `core.config.require`.

        Raises:
            UsageError: a value is out of its range.
        """

    # ------------------------------------------------------------------------------------------------- initial messages

    @abstractmethod
    def plan_initial_frames(self, info: VideoInfo, sample: Sample, envelope: PixelEnvelope) -> FrameRequest:
        """The initial frames."""

    @abstractmethod
    def prompt(self, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
        """System and user messages that start the rollout.

        It is called before `images` are decoded, so that they have no pixels yet. It is called again only where other
        frames replace damaged ones.
        """

    def message_templates(self) -> Mapping[str, Template]:
        """Templates of the messages that this config writes by `core.prompts.render`, by name. The user's
        `templates_file` may replace each."""
        return {}

    # -------------------------------------------------------------------------------------------------- turns and calls

    @abstractmethod
    def parse(self, text: str) -> ParsedTurn:
        """Read one assistant turn. Never raises."""

    @abstractmethod
    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        """The tools of a rollout on this video, by the name that calls carry."""

    def continues_after(self, parsed: ParsedTurn) -> bool:
        """Whether another turn follows a turn without an answer. If not, its calls are not executed."""
        return bool(parsed.calls)

    @abstractmethod
    def observe(self, outcomes: Sequence[ToolOutcome], turns_left: int) -> Content:
        """The user message that answers the calls of a turn. A turn may have no calls if `continues_after` allows it.

        Like `prompt` it is called before images are decoded. It is called again where a call fails or is refused for a
        budget.
        """

    def ends_on_budget(self) -> bool:
        """Whether an observation that exceeds a budget ends the rollout. If not, the model reads a refusal instead."""
        return self.end_on_call_error

    def stop_reason_after(self, trajectory: Trajectory) -> StopReason | None:
        """Reason to end the rollout after an observation, which answers the last turn of `trajectory`; None: go on."""
        return None

    def context_policy(self) -> ContextPolicy:
        """What later turns see (docs/write-a-method.md): the whole dialogue, or what a function makes of it.

        The function returns messages of the dialogue, or new ones with texts and images from it: first system and user
        messages, then turns of the assistant, each with the user message that answers it. It is also called before
        images are decoded, and its result must depend on the dialogue alone. A training sequence goes on as long as the
        result only adds the last turn and what answers it to what that turn has seen; otherwise a new one begins.
        """
        return append

    # ----------------------------------------------------------------------------------------------------------- reward

    async def score(self, trajectory: Trajectory, sample: Sample, judge: Judge | None = None) -> dict[str, float]:
        """Reward of a finished rollout: ``{"score": float, **components}`` with all `reward_components` present.

        The score is the sum of the components without `turn_components` and `unpaid_components`. A lost rollout
        (`Trajectory.is_lost`) earns nothing. What single turns earn is written to `Turn.rewards`, and nothing else of
        the record changes; the component itself is the sum over the turns.

        Raises:
            UsageError: the question needs a judge and there is none; see `core.sample.check_question`.
            JudgeError: the judge gave no verdict.
        """
        self.check_sample(sample, judge)
        if trajectory.is_lost():
            return zero_reward(self)
        components = dict(await self.components(trajectory, sample, judge))
        if set(components) != set(expected := self.no_components()):
            raise TypeError(
                f"{type(self).__name__}.components gave {sorted(components)}, and reward_components are "
                f"{sorted(expected)}"
            )
        by_turn = {name: _by_turn(self, name, components.pop(name), trajectory) for name in self.turn_components}
        for number, turn in enumerate(trajectory.turns):
            turn.rewards = {name: values[number] for name, values in by_turn.items()}
        reward = cast("dict[str, float]", components)
        reward |= {name: summed(values) for name, values in by_turn.items()}
        reward |= dict.fromkeys(self.group_components, 0.0)  # of a rollout without siblings
        return {"score": self.paid_score(reward), **reward}

    def paid_score(self, components: Mapping[str, float]) -> float:
        """The score of a rollout with these `reward_components`."""
        apart = {*self.turn_components, *self.unpaid_components}
        return summed(value for name, value in components.items() if name not in apart)

    @abstractmethod
    async def components(
        self, trajectory: Trajectory, sample: Sample, judge: Judge | None
    ) -> Mapping[str, float | Sequence[float]]:
        """The weighted reward components of a rollout that was not lost, without the `group_components`: a number each,
        and for `turn_components` a number for each of the rollout's turns.

        Raises:
            JudgeError: the judge gave no verdict.
        """

    def no_components(self) -> dict[str, float]:
        """The components of a rollout that earns nothing."""
        return dict.fromkeys((name for name in self.reward_components if name not in self.group_components), 0.0)

    def acc(self, reward: Mapping[str, float], sample: Sample) -> float:
        """verl's metric `acc` of a rollout: 1 for a correct answer, 0 for a wrong or partly correct one.

        Args:
            reward: the result of `score`.
        """
        return float(0.0 < self.accuracy_reward <= reward.get("accuracy", 0.0))

    def check_sample(self, sample: Sample, judge: object | None) -> None:
        """Check that an answer to the question can be graded.

        Raises:
            UsageError: it cannot, for a reason that `core.sample.check_question` lists.
        """
        check_question(sample, judge)

    def check_gradable(self, sample: Sample, judge: object | None) -> None:
        """Check that a rollout on the row could earn the full reward.

        `vvt data validate` and the start of a run call it for the method of each row. A method that grades answers
        without `grading.answers`, or pays by a further field of the row, adds its check here.

        Raises:
            UsageError: as `check_sample`, or the row has no truth.
        """
        if not sample.ground_truth.strip():
            raise UsageError("reward_model.ground_truth is empty")
        self.check_sample(sample, judge)

    # ----------------------------------------------------------------------------------------------------------- groups

    def for_session(self, session_id: int, group_size: int, validate: bool) -> Method:
        """The config of one rollout, for methods whose rollouts differ within a group: this config with other values in
        some of `core.method.rollout_fields`.

        Args:
            session_id: number of the rollout in its group, from 0.
            group_size: rollouts of a group.
            validate: the rollout is for validation, not for training.
        """
        return self

    def score_group(
        self, trajectories: Sequence[Trajectory], rewards: Sequence[Mapping[str, float]], sample: Sample
    ) -> Sequence[Mapping[str, float]]:
        """The weighted `group_components` of each rollout of a group.

        It is called once per training group, after the last rollout is scored and before dynamic sampling, metrics and
        advantages read any reward. It is called on the run's method; fields that differ for a rollout are in
        `Trajectory.settings`. It runs in the agent loop worker and should take milliseconds, not seconds.

        Args:
            trajectories: two or more, in order of their number in the group, without flagged and lost rollouts.
            rewards: for each of them `score` and all `reward_components` of `Method.score`, and `acc`.
            sample: the question.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------------- other questions than one about one video

    def picture_prompt(self, question: str, images: Sequence[ImagePart]) -> list[Message]:
        """Messages that start a rollout on a row without a video, which has no tools.

        Args:
            images: the pictures of the row, without pixels before they are decoded; empty for a row of text alone.

        Raises:
            UsageError: the method needs a video.
        """
        raise UsageError(f"{self.name} does not ask about pictures; such rows are for methods with a `picture_prompt`")

    @property
    def asks_about_several_videos(self) -> bool:
        """Whether it has `plan_videos` and `videos_prompt`."""
        return False

    def plan_videos(self, infos: Sequence[VideoInfo], sample: Sample, envelope: PixelEnvelope) -> list[FrameRequest]:
        """The initial frames of a row with several videos: requests with their `video`, from 0.

        Raises:
            UsageError: the method does not ask about several.
        """
        raise UsageError(f"{self.name} does not ask about several videos")

    def videos_prompt(self, sample: Sample, infos: Sequence[VideoInfo], images: Sequence[ImagePart]) -> list[Message]:
        """Messages that start a rollout on several videos, like `Method.prompt`. The images are those of `plan_videos`
        in their order; each record has its `video`.

        Raises:
            UsageError: the method does not ask about several.
        """
        raise UsageError(f"{self.name} does not ask about several videos")

    # ------------------------------------------------------------------------------------ verification and new attempts

    def verification_context(self, trajectory: Trajectory, dialogue: Sequence[Message]) -> Sequence[Message] | None:
        """What the policy sees when it is asked once more after its answer; None: it is not asked.

        The messages follow the rules of `context_policy`. The reply is sampled from the same weights and is not part of
        a training sequence. Its record is `Trajectory.verification`, which `components` may read.
        """
        return None

    def attempt(self, number: int, max_attempts: int) -> Method:
        """The config of one of several attempts at a question, for methods whose authors evaluate so.

        Args:
            number: number of the attempt, from 1.
            max_attempts: upper bound of attempts, more than 1.

        Raises:
            UsageError: the authors make one attempt.
        """
        raise UsageError(f"{self.name} makes one attempt at a question: leave --attempts out")

    def attempt_fault(self, trajectory: Trajectory) -> str | None:
        """Why an attempt does not count, so that another one follows; None for an attempt that counts."""
        return None

    # ------------------------------------------------------------------------------------------- properties of a config

    @property
    def searches(self) -> bool:
        """Whether a tool of this config finds frames by text, which needs a retriever (docs/retrieval.md)."""
        return False

    @property
    def asks_model(self) -> bool:
        """Whether a tool of this config asks a model, which the run must configure (docs/tools.md)."""
        return False

    @property
    def initial_frames_as_video(self) -> bool:
        """Whether the initial frames are sent as one video, to an endpoint that takes videos."""
        return False

    @property
    def label(self) -> str:
        """Name of this config in tables, for configs of one method that a reader would compare."""
        return self.name

    def provenance(self) -> dict[str, Any] | None:
        """Facts that records hold about a config whose parts do not follow from the method's name: names of its reward
        components (`rewards`) and tools (`tools`), and what else identifies it. None for all other methods."""
        return None


def _by_turn(method: Method, name: str, values: float | Sequence[float], trajectory: Trajectory) -> list[float]:
    if isinstance(values, int | float) or len(values) != len(trajectory.turns):
        raise TypeError(
            f"{type(method).__name__}.components gave {name} = {values!r:.120} for {len(trajectory.turns)} turns; "
            "it is one of turn_components, which have a number for each turn"
        )
    return [float(value) for value in values]


def zero_reward(method: Method) -> dict[str, float]:
    """The result of `Method.score` for a rollout that earns nothing."""
    return {"score": 0.0, **dict.fromkeys(method.reward_components, 0.0)}


@cache
def rollout_fields(method_class: type[Method]) -> frozenset[str]:
    """Fields that rollouts, rows and records may set: numbers, flags, choices among fixed words, and tuples of them.

    Any other text could name code or a file, so that only the user's configuration sets it, for the whole run. The same
    holds for every field whose type is not known to be harmless.
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
    """The method of one rollout: the run's method with the fields that differ for the rollout.

    Every reader of recorded rollouts calls it: reward, metrics, replay, export, fine-tuning.

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
            f"a rollout may not set {', '.join(refused)} of {type(run).__name__}: a field that can name code or a file "
            f"is taken from your own configuration alone. Remove it from the row or record, and set it with --set or "
            f"video_tools.{run.name} if you want it"
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
