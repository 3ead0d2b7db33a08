"""What a method is, and its tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from verl_video_tools.errors import UsageError
from verl_video_tools.types.frames import FrameRequest, PixelEnvelope, VideoInfo
from verl_video_tools.types.messages import Content, ImagePart, Message
from verl_video_tools.types.sample import Sample
from verl_video_tools.types.services import Judge, Retriever
from verl_video_tools.types.trajectory import ParsedTurn, StopReason, ToolOutcome, ToolPlan, Trajectory

if TYPE_CHECKING:
    from verl_video_tools.judge.config import JudgeConfig

Compat = Literal["strict", "reference"]


ContextPolicy = Literal["append", "last_evidence", "initial_plus_last"]
"""What of a rollout's pictures a later turn still sees: all; only those of the last observation; these and the first
look. Texts stay in every case."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know when it plans a call: the bound video and the limits, never a path from the model."""

    info: VideoInfo
    sample: Sample
    envelope: PixelEnvelope
    index_at: Callable[[float], Awaitable[int]]
    """Await the index of the frame shown at a time in seconds (0 <= t <= duration). Raises VideoError."""
    retriever: Retriever | None = None
    """Finds frames by text; None where the run has none."""


class Tool(Protocol):
    """What the environment can do. One file per tool in `tools/`."""

    name: ClassVar[str]

    async def plan(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolPlan:
        """Check the arguments and say what would be shown.

        Raises:
            CallRejected: the call cannot be carried out; the code says why.
        """
        ...


class FrameSelector(Protocol):
    """Chooses the frames that are shown with the question in a method's place: a field `first_look_selector`."""

    async def __call__(self, look: FrameRequest, context: ToolContext, deadline_seconds: float) -> FrameRequest:
        """Other frames than the method's `look`, at its size and no more of them.

        Raises:
            RetrievalError: they could not be searched.
            VideoError: they cannot be decoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecipeBudget:
    """What a method's recipe reserves per rollout, in tokens and pictures."""

    prompt_tokens: int
    response_tokens: int
    images: int


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method of the literature as one frozen config: grammar, tools, loop policy, prompt and reward.

    The agent loop, `replay`, data export and evaluation know methods only through this class. Fields are the knobs;
    their defaults are the paper's.
    """

    name: ClassVar[str]
    reward_components: ClassVar[tuple[str, ...]]
    """Names of the breakdown that `score` returns beside `score` itself, in every case."""
    recipe_budget: ClassVar[RecipeBudget]
    """Limits of the method's recipe; `replay` applies them when it is given a processor."""
    searches: ClassVar[bool] = False
    """A tool of the method finds frames by text, which takes a retriever (docs/retrieval.md)."""

    accuracy_reward: float = 1.0
    """What a correct answer adds to the reward, as its component `accuracy`."""
    max_turns: int
    """Assistant turns at most; a call in the last one is refused (`turn_limit`)."""
    max_turn_tokens: int | None = None
    """Tokens that the policy may generate in one turn; None leaves it to the response budget."""
    stop: tuple[str, ...] = ()
    """Stop strings that end a turn (kept in the text)."""
    end_on_call_error: bool = True
    """True: a refused call ends the rollout (`invalid_action`). False: the model reads the error and goes on."""
    tool_deadline_seconds: float = 300.0
    """Time that the first look, or one call, may take before it is recorded as failed, waiting for the decodes of other
    rollouts included: 512 frames of an hour of video take more than a minute. Too short a time is a silent bias: the
    rollouts that it flags are those on the longest videos."""
    first_look_selector: str | None = None
    """Python path `module:function` of a `FrameSelector` that chooses the frames shown with the question; None: the
    method's own. `verl_video_tools.selectors:most_similar` takes those most like the question."""
    prompt_file: str | None = None
    """Path of a system prompt that replaces the packaged one; same placeholders."""
    compat: Compat = "strict"
    """`reference` scores and executes as the published code does; the method's page lists every difference."""

    def check_sample(self, sample: Sample, judge: Judge | JudgeConfig | None) -> None:
        """Say, before or after a rollout, that its answer could not be graded.

        Raises:
            UsageError: as `rewards.grading.check_question`, whose rules are those of every method that grades answers
                by the type of their question.
        """
        from verl_video_tools.rewards.grading import check_question  # which imports the types

        check_question(sample, judge)

    def acc(self, reward: Mapping[str, float]) -> float:
        """verl's metric `acc` of a rollout: whether its answer is right. A partly right one is not.

        Args:
            reward: what `score` has returned.
        """
        return float(0.0 < self.accuracy_reward <= reward.get("accuracy", 0.0))

    def for_session(self, session_id: int, group_size: int, validate: bool) -> Method:
        """The config of one rollout of a group, where the rollouts of a group differ by design.

        Args:
            session_id: number of the rollout in its group, from 0.
            group_size: rollouts of a group.
            validate: the rollout is for validation, not for training.
        """
        return self

    def own_settings(self, run: Method) -> dict[str, Any]:
        """The fields in which this config of one rollout differs from the run's."""
        values = {own.name: getattr(self, own.name) for own in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(run, name)}

    def context_policy(self) -> ContextPolicy:
        """What of earlier turns the next one sees; anything but `append` makes one training sequence per turn."""
        return "append"

    @abstractmethod
    def first_look(self, info: VideoInfo, sample: Sample, envelope: PixelEnvelope) -> FrameRequest:
        """Frames shown with the question."""

    @abstractmethod
    def prompt(self, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
        """System and user messages that start the rollout."""

    def picture_prompt(self, question: str, images: Sequence[ImagePart]) -> list[Message]:
        """Messages that ask about pictures, where fine-tuning has such rows (docs/cold-start.md). No video: no tools.

        Raises:
            UsageError: the method has none.
        """
        raise UsageError(f"{self.name} does not ask about pictures; such rows are for methods with a `picture_prompt`")

    @abstractmethod
    def parse(self, text: str) -> ParsedTurn:
        """Read one assistant turn. Never raises."""

    @abstractmethod
    def tools(self, info: VideoInfo) -> Mapping[str, Tool]:
        """The tools of a rollout on this video, by the name that calls carry."""

    def goes_on_after(self, parsed: ParsedTurn) -> bool:
        """Whether a turn without an answer asks for another one. Where it does not, its calls are not carried out."""
        return bool(parsed.calls)

    @abstractmethod
    def observe(self, outcomes: Sequence[ToolOutcome], turns_left: int) -> Content:
        """The user message that answers a turn's calls, of which there may be none where `goes_on_after` says so."""

    def dearest_call(self, info: VideoInfo, sample: Sample, envelope: PixelEnvelope) -> FrameRequest | None:
        """As many frames as one call can show of this video, at their size; which ones does not matter. `vvt budget`
        asks. None: it shows none, or nobody has said."""
        return None

    def ends_on_budget(self) -> bool:
        """Whether an observation that does not fit ends the rollout. If not, the model reads a refusal in its place."""
        return self.end_on_call_error

    def ends_after(self, trajectory: Trajectory) -> StopReason | None:
        """Asked once a turn's calls are answered, the last turn being this one: why no further turn follows, if so."""
        return None

    @abstractmethod
    async def score(self, trajectory: Trajectory, sample: Sample, judge: Judge | None = None) -> dict[str, float]:
        """Reward of a finished rollout: ``{"score": float, **components}`` with all `reward_components` present.

        Raises:
            UsageError: the question needs a judge and there is none; see `rewards.grading.check_question`.
            JudgeError: the judge gave no verdict.
        """

    def zero_reward(self) -> dict[str, float]:
        """The breakdown of a rollout that earns nothing."""
        return {"score": 0.0, **dict.fromkeys(self.reward_components, 0.0)}
