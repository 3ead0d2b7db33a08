"""The domain in one import-light file: frames, messages, calls, turns, trajectories, and what a method is.

Legend of axes: T frames in time order of the request, H height, W width, C colour channels (RGB).
Times are presentation times in seconds from the first frame shown; indices count frames in presentation order from 0.
Nothing here imports torch, PyAV or verl.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from verl_video_tools.errors import BUDGET_CODES, FAILURE_CODES, RowError

if TYPE_CHECKING:
    from verl_video_tools.judge.config import JudgeConfig

Compat = Literal["strict", "reference"]
# -------------------------------------------------------------------------------------------------------------- frames


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Facts probed from a file, never taken from a row. Width and height are as displayed (rotation applied)."""

    duration_seconds: float
    num_frames: int
    average_fps: float
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """What one shown frame was: the part of a frame that is kept after its pixels are gone.

    Width and height are in pixels, as handed to the processor.
    """

    index: int
    timestamp_seconds: float
    width: int
    height: int


@dataclass(frozen=True)
class FrameBatch:
    """Decoded frames with the presentation times that the decoder reported; order and duplicates as requested.

    Attributes:
        frames_THWC: uint8 RGB.
        timestamps_seconds: float64, shape (T,).
        corrupt: bool, shape (T,); True where the nearest decodable frame stands in for a damaged one.
        index_of: maps float64 times (T,) to int64 frame indices (T,); called once, on first use of `indices`.
        num_cached: frames that came from a cache.
    """

    frames_THWC: npt.NDArray[np.uint8]
    timestamps_seconds: npt.NDArray[np.float64]
    corrupt: npt.NDArray[np.bool_]
    index_of: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.int64]]
    num_cached: int = 0

    def __post_init__(self) -> None:
        num_frames = len(self.frames_THWC)
        if self.frames_THWC.ndim != 4 or self.frames_THWC.shape[-1] != 3 or self.frames_THWC.dtype != np.uint8:
            raise ValueError(
                f"frames_THWC must be uint8 (T, H, W, 3), got {self.frames_THWC.dtype} {self.frames_THWC.shape}"
            )
        for name in ("timestamps_seconds", "corrupt"):
            if getattr(self, name).shape != (num_frames,):
                raise ValueError(f"{name} must have shape ({num_frames},), got {getattr(self, name).shape}")

    @cached_property
    def indices(self) -> npt.NDArray[np.int64]:
        """Frame numbers in presentation order, int64, shape (T,). A file without an index is scanned once."""
        return self.index_of(self.timestamps_seconds)

    def __len__(self) -> int:
        return len(self.frames_THWC)

    def __repr__(self) -> str:  # shapes, never pixels
        return f"FrameBatch(shape={self.frames_THWC.shape}, timestamps_seconds={self.timestamps_seconds.tolist()})"


Rounding = Literal["nearest", "shown"]


@dataclass(frozen=True, slots=True)
class FrameRequest:
    """Frames to decode, at the size that the processor gets. Exactly one of `seconds` and `indices` is given.

    Attributes:
        rounding: which frame a time means, the one `shown` then or the one that begins `nearest` to it, half way the
            later one.
    """

    width: int
    height: int
    seconds: tuple[float, ...] | None = None
    indices: tuple[int, ...] | None = None
    rounding: Rounding = "shown"

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.indices is None):
            raise ValueError("a FrameRequest takes either seconds or indices")

    def __len__(self) -> int:
        return len(self.seconds if self.seconds is not None else self.indices or ())


@dataclass(frozen=True, slots=True)
class PixelEnvelope:
    """What the processor leaves untouched: sides that are multiples of `factor`, area within [min, max] pixels.

    The default says "no processor": sizes are then whatever the method asks for.
    """

    factor: int = 1
    min_pixels: int = 1
    max_pixels: int = 1 << 62


# ----------------------------------------------------------------------------------------------------------- messages

IMAGE_MARK = "<image>"
"""Stands for one picture wherever a message is shown as text."""


@dataclass(frozen=True)
class ImagePart:
    """One picture in a message. `pixels_HWC` is None while only its cost is being asked for."""

    record: FrameRecord
    pixels_HWC: npt.NDArray[np.uint8] | None = field(default=None, repr=False)


Content = tuple["str | ImagePart", ...]
"""Text and pictures in reading order."""


@dataclass(frozen=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: Content


def content_text(content: Content) -> str:
    """Content as one string, with `IMAGE_MARK` for each picture."""
    return "".join(part if isinstance(part, str) else IMAGE_MARK for part in content)


def content_images(content: Content) -> list[ImagePart]:
    return [part for part in content if isinstance(part, ImagePart)]


# ---------------------------------------------------------------------------------------------------- calls and turns


class StopReason(StrEnum):
    """Why a rollout ended. Each is logged as a one-hot rate."""

    ANSWER = "answer"
    MAX_TURNS = "max_turns"
    NO_ACTION = "no_action"
    INVALID_ACTION = "invalid_action"
    PROMPT_BUDGET = "prompt_budget"
    RESPONSE_BUDGET = "response_budget"
    IMAGE_BUDGET = "image_budget"
    SCRIPT_EXHAUSTED = "script_exhausted"
    VIDEO_ERROR = "video_error"
    ABORTED = "aborted"


@dataclass(frozen=True)
class ToolCall:
    """A call as the parser read it. `error` is set (``"<code>: <message>"``) where it is not well-formed."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class ParsedTurn:
    """One assistant turn as its method's grammar reads it. Parsing never raises, whatever the text.

    Attributes:
        thought: text of the thinking block, None if there is none.
        calls: every call recognised, also malformed ones.
        answer: text of the answer, stripped; None if the turn does not answer.
        summary: what the turn passes on to the next one, where the method's grammar knows such a thing.
        well_formed: the turn follows the method's grammar to the letter (what a format reward asks).
    """

    thought: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    well_formed: bool = False
    summary: str | None = None


@dataclass(frozen=True)
class ToolPlan:
    """What a call will do, known before a pixel is decoded: frames to show and/or facts to state."""

    frames: FrameRequest | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able facts, e.g. ``{"frame_number": 815}``; kept in the record, for rewards."""


@dataclass
class CallRecord:
    """One call as it was carried out or refused."""

    name: str
    arguments: dict[str, Any]
    ok: bool
    error: str | None = None
    frames: list[FrameRecord] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    latency_ms: float = 0.0
    retrieved_frames: list[list[int]] = field(default_factory=list)
    """What the retriever answered while the call was planned, a list of frame indices per query, the best one first."""

    def failed(self) -> bool:
        """Whether it was not executed through no fault of the policy (`errors.FAILURE_CODES`)."""
        return self._code() in FAILURE_CODES

    def found_no_room(self) -> bool:
        """Whether it was refused because what it would have shown did not fit (`errors.BUDGET_CODES`)."""
        return self._code() in BUDGET_CODES

    def _code(self) -> str:
        return (self.error or "").partition(":")[0]


@dataclass(frozen=True)
class ToolOutcome:
    """A call's record, the pictures that go with it, in the order of `record.frames`, and the video asked about."""

    record: CallRecord
    images: tuple[ImagePart, ...] = ()
    video: VideoInfo | None = None


@dataclass
class Turn:
    """One assistant turn and the observation that answered it."""

    text: str
    calls: list[CallRecord] = field(default_factory=list)
    observation: str | None = None
    thought: str | None = None
    answer: str | None = None
    well_formed: bool = False
    truncated: bool = False
    """The turn was cut by its token limit."""


@dataclass
class CacheUse:
    """What the frame cache of its node did for a rollout."""

    hits: int = 0
    """Frames that came from the cache."""
    misses: int = 0
    """Frames that had to be decoded."""
    stored_bytes: int = 0
    """Fill of the cache when the rollout last asked it for frames."""


@dataclass
class Trajectory:
    """The one record of a rollout: the viewer draws it, the reward reads it, exports and evaluation count it."""

    method: str
    question: str
    video: VideoInfo | None = None
    initial_frames: list[FrameRecord] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason | None = None
    answer: str | None = None
    error: str | None = None
    """Set with `video_error` and `aborted`: what happened."""
    flags: list[str] = field(default_factory=list)
    """Reasons to keep the rollout out of training (broken invariant, judge failure, infrastructure error)."""
    cache: CacheUse = field(default_factory=CacheUse)
    retrieved_frames: list[list[int]] = field(default_factory=list)
    """What the retriever answered for the first look, as `CallRecord.retrieved_frames` for a call."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the method that are this rollout's own, where those of a group differ by design (FrameMind's rung)."""

    def first_look(self) -> list[int]:
        """Indices of the frames that were shown with the question."""
        return [frame.index for frame in self.initial_frames]

    def calls(self) -> list[CallRecord]:
        return [call for turn in self.turns for call in turn.calls]

    def executed_calls(self) -> list[CallRecord]:
        return [call for call in self.calls() if call.ok]

    def counts(self) -> dict[str, int]:
        executed = self.executed_calls()
        return {
            "assistant_turns": len(self.turns),
            "executed_calls": len(executed),
            "initial_frames": len(self.initial_frames),
            "tool_frames": sum(len(call.frames) for call in executed),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-able dict; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trajectory:
        def frames(records: Sequence[Mapping[str, Any]]) -> list[FrameRecord]:
            return [FrameRecord(**record) for record in records]

        def call(record: Mapping[str, Any]) -> CallRecord:
            return CallRecord(**{**record, "frames": frames(record["frames"])})

        turns = [Turn(**{**turn, "calls": [call(record) for record in turn["calls"]]}) for turn in data["turns"]]
        video = VideoInfo(**data["video"]) if data["video"] is not None else None
        stop_reason = StopReason(data["stop_reason"]) if data["stop_reason"] is not None else None
        return cls(
            **{
                **data,
                "video": video,
                "initial_frames": frames(data["initial_frames"]),
                "turns": turns,
                "stop_reason": stop_reason,
                "cache": CacheUse(**data.get("cache", {})),
            }
        )


# ------------------------------------------------------------------------------------------------------------ samples

QuestionType = Literal["mc", "numeric", "open"]


@dataclass(frozen=True)
class Sample:
    """One row of the data set as loops and rewards see it (columns: `docs/rows.md`).

    `question` is the whole text that the model reads, option lines included.
    """

    question: str
    ground_truth: str
    video_path: str
    question_type: QuestionType
    options: tuple[str, ...] = ()
    video_segment_seconds: tuple[float, float] | None = None
    extra_info: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Sample:
        """Read a row as verl hands it to an agent loop or a reward manager.

        Raises:
            RowError: a needed field is missing or empty, or one holds what it cannot; names the field and the row's
                index.
        """
        extra_info = _entries(row, "extra_info", "row index=? split=?")
        where = f"row index={extra_info.get('index', '?')} split={extra_info.get('split', '?')}"
        for name in ("question", "video_path"):
            if not extra_info.get(name):
                raise RowError(f"{where}: extra_info.{name} is missing or empty; docs/rows.md lists what a row holds")
        truth = _entries(row, "reward_model", where).get("ground_truth")
        if truth is None:
            raise RowError(f"{where}: reward_model.ground_truth is missing")
        truth = str(truth)
        question_type = extra_info.get("question_type") or default_question_type(truth)
        if question_type not in get_args(QuestionType):
            raise RowError(
                f"{where}: extra_info.question_type must be one of {', '.join(get_args(QuestionType))}, got "
                f"{question_type!r}"
            )
        try:
            options = _options(extra_info.get("options"))
            segment = _segment(extra_info.get("video_segment"))
        except ValueError as error:
            raise RowError(f"{where}: {error}") from error
        return cls(
            question=str(extra_info["question"]),
            ground_truth=truth,
            video_path=str(extra_info["video_path"]),
            question_type=question_type,
            options=options,
            video_segment_seconds=segment,
            extra_info=extra_info,
        )


def _entries(row: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """A column of named entries; none where it is missing. Raises RowError for anything else, such as their JSON."""
    given = row.get(name)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise RowError(f"{where}: {name} must hold named entries (docs/rows.md lists them), got {given!r:.200}")
    return given


def _options(given: Any) -> tuple[str, ...]:
    """Texts of options, given as a list or as the JSON of one."""
    if given is None:
        return ()
    try:
        texts = json.loads(given) if isinstance(given, str) else given
    except json.JSONDecodeError:
        texts = given
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable):
        raise ValueError(f"extra_info.options must be a list of texts, or the JSON of one, got {given!r:.200}")
    return tuple(str(text) for text in texts)


def _segment(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        start, end = given
        return float(start), float(end)
    except (TypeError, ValueError):
        raise ValueError(
            f"extra_info.video_segment must be [start, end] in seconds, or be left out, got {given!r:.200}"
        ) from None


def default_question_type(ground_truth: str) -> QuestionType:
    """`mc` if the truth is one letter, else `open`."""
    return "mc" if len(ground_truth.strip()) == 1 and ground_truth.strip().isalpha() else "open"


class AnswerLabel(StrEnum):
    """How an answer compares with the truth."""

    CORRECT = "correct"
    PARTIAL = "partial"
    INCORRECT = "incorrect"

    @property
    def worth(self) -> float:
        """1 where right, 0.5 where partly right, else 0: what methods with graded answers pay."""
        return {AnswerLabel.CORRECT: 1.0, AnswerLabel.PARTIAL: 0.5, AnswerLabel.INCORRECT: 0.0}[self]


class Judge(Protocol):
    """Compares a free-form answer with the truth, for questions that no rule can decide."""

    async def judge(self, question: str, truth: str, answer: str) -> AnswerLabel:
        """The judge's verdict on one answer.

        Raises:
            JudgeError: no verdict could be had. It is never taken for a wrong answer.
        """
        ...


class Retriever(Protocol):
    """Finds the frames of a video that show what a text says."""

    async def best_frames(
        self, video_path: str, candidates: Sequence[int], text: str, num_frames: int, deadline_seconds: float
    ) -> list[int]:
        """The `num_frames` candidates (all, if there are fewer) most like the text, the best one first.

        Args:
            candidates: frame indices in order of time, without duplicates; of two that are equally alike the earlier
                one is better.

        Raises:
            RetrievalError: no answer could be had in time.
            VideoError: the candidates cannot be decoded.
        """
        ...


# ------------------------------------------------------------------------------------------------------------ methods

ContextPolicy = Literal["append", "last_evidence", "initial_plus_last"]
"""What of a rollout's pictures a later turn still sees: all; only those of the last observation; these and the first
look. Texts stay in every case."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know when it plans a call: the bound video and the limits, never a path from the model."""

    info: VideoInfo
    sample: Sample
    envelope: PixelEnvelope
    index_at: Callable[[float], int]
    """Index of the frame shown at a time in seconds (0 <= t <= duration)."""
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
        from verl_video_tools.rewards.grading import check_question  # which imports this module

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
