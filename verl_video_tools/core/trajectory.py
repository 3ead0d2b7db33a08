"""Calls, turns and the record of a whole rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from verl_video_tools.core.errors import BUDGET_CODES, EMPTY_CODES, FAILURE_CODES, CallError
from verl_video_tools.core.frames import FrameRecord, FrameRequest, VideoInfo
from verl_video_tools.core.messages import ImagePart
from verl_video_tools.core.services import ModelCall

JUDGE_FLAG = "judge"
"""Flag of a rollout that its judge gave no verdict on."""
REWARD_FLAG = "reward"
"""Flag of a rollout whose reward its method failed to compute."""
GROUP_SCORE_FLAG = "group_score"
"""Flag of rollouts that their method failed to compare with each other."""


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
    """A call as the parser read it. `error` is set where it is not well-formed."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: CallError | None = None


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
    text: str | None = None
    """What the call answers in words: alone, or before its frames. Recorded, and counted by the budget like all that
    an observation holds."""


@dataclass
class CallRecord:
    """One call as it was carried out or refused.

    `ok` holds once its result is in the observation that answers the turn. A call that was planned, and whose turn
    nothing answers, is not executed: it has no frames and no result.
    """

    name: str
    arguments: dict[str, Any]
    ok: bool
    error: CallError | None = None
    frames: list[FrameRecord] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    latency_ms: float = 0.0
    retrieved_frames: list[list[int]] = field(default_factory=list)
    """What the retriever answered while the call was planned, a list of frame indices per query, the best one first."""
    text: str | None = None
    """What the call answered in words (`ToolPlan.text`); None in records of calls that answered none."""
    model_calls: list[ModelCall] = field(default_factory=list)
    """What the tool asked of its model while the call was planned, in order, failed questions included."""

    def failed(self) -> bool:
        """Whether it was not executed through no fault of the policy (`errors.FAILURE_CODES`)."""
        return self.error is not None and self.error.code in FAILURE_CODES

    def found_nothing(self) -> bool:
        """Whether it was a right call that had nothing to show (`errors.EMPTY_CODES`)."""
        return self.error is not None and self.error.code in EMPTY_CODES

    def refused(self) -> bool:
        """Whether the policy is to blame for a call that was not carried out."""
        return not (self.ok or self.failed() or self.found_nothing())

    def exceeded_budget(self) -> bool:
        """Whether it was refused because what it would have shown did not fit (`errors.BUDGET_CODES`)."""
        return self.error is not None and self.error.code in BUDGET_CODES


@dataclass(frozen=True)
class ToolOutcome:
    """A call's record, the images that go with it, in the order of `record.frames`, and the video asked about."""

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
    reasoning: str | None = None
    """What the model thought before it said `text`, where that is native reasoning and not the method's thought."""


@dataclass
class CacheUse:
    """What the frame cache of its process did for a rollout."""

    hits: int = 0
    """Frames that came from the cache."""
    misses: int = 0
    """Frames that had to be decoded."""
    stored_bytes: int = 0
    """Fill of the cache when the rollout last asked it for frames."""


@dataclass
class Verification:
    """What came of asking the policy once more from frames alone (`Method.verification_frames`).

    Attributes:
        frames: that it was shown, in this order.
        text: its reply; None where there was none.
        error: why there was none, in words: it did not fit, or the policy has no more to say.
    """

    frames: list[FrameRecord] = field(default_factory=list)
    text: str | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"frames": [frame.to_dict() for frame in self.frames], "text": self.text, "error": self.error}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verification:
        return cls([FrameRecord.from_dict(frame) for frame in data["frames"]], data["text"], data["error"])


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
    """What the retriever answered for the initial frames, as `CallRecord.retrieved_frames` for a call."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the method that are this rollout's own, where those of a group differ by design (FrameMind's rung).
    With the run's method they give the rollout's (`core.method.method_of_rollout`)."""
    prompt_digest: str | None = None
    """Of the user's system prompt (`core.prompts.prompt_digest`); None where the packaged one was shown."""
    more_videos: list[VideoInfo] = field(default_factory=list)
    """Those after `video` in a row with several; records hold them where there are any."""
    visuals: Literal["video", "images", "none"] = "video"
    """What the question came with. `images` are the `initial_frames`, by their numbers in the row. With either of the
    others there is no `video`, and records hold this field."""
    provenance: dict[str, Any] | None = None
    """`Method.provenance`: what the method's name does not tell of it."""
    verification: Verification | None = None
    """What the policy replied when it was asked once more, from frames alone; records hold it where it was asked."""

    def is_lost(self) -> bool:
        """Whether it says nothing of the policy: the video was never opened or could not be read, or the rollout was
        aborted."""
        is_unopened = self.video is None and self.visuals == "video"
        return is_unopened or self.stop_reason in (StopReason.VIDEO_ERROR, StopReason.ABORTED)

    def initial_frame_indices(self) -> list[int]:
        """Indices of the frames that were shown with the question."""
        return [frame.index for frame in self.initial_frames]

    def initial_frames_difference(self, recorded: Sequence[int]) -> str | None:
        """How the initial frames of this replay differ from the recorded rollout's; None if they are the same.

        Sizes may differ: a teacher behind an endpoint may be shown larger ones.
        """
        if list(recorded) == self.initial_frame_indices():
            return None
        return (
            f"its rollout was first shown {_frames_in_words(recorded)}, and is replayed with "
            f"{_frames_in_words(self.initial_frame_indices())}"
        )

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
        """JSON-able dict; `from_dict` is its inverse. The error of a call is a text, as `CallError` writes it."""
        # `asdict` copies each value of each frame by itself: 30 ms for 752 frames, on the event loop of all rollouts.
        turns = [replace(turn, calls=[_without_frames(call) for call in turn.calls]) for turn in self.turns]
        data = asdict(replace(self, initial_frames=[], turns=turns, verification=None))
        data["verification"] = None if self.verification is None else self.verification.to_dict()
        data["initial_frames"] = _frame_dicts(self.initial_frames)
        data["video"] = None if self.video is None else self.video.to_dict()
        data["more_videos"] = [info.to_dict() for info in self.more_videos]
        _leave_out(data, _LEFT_OUT)
        for turn, made in zip(self.turns, data["turns"], strict=True):
            for call, record in zip(turn.calls, made["calls"], strict=True):
                record["frames"] = _frame_dicts(call.frames)
                for exchange, asked in zip(call.model_calls, record["model_calls"], strict=True):
                    asked["frames"] = _frame_dicts(exchange.frames)
                record["error"] = None if call.error is None else str(call.error)
                _leave_out(record, _LEFT_OUT_OF_CALLS)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trajectory:
        def frames(records: Sequence[Mapping[str, Any]]) -> list[FrameRecord]:
            return [FrameRecord.from_dict(record) for record in records]

        def call(record: Mapping[str, Any]) -> CallRecord:
            error = None if record.get("error") is None else CallError.parse(record["error"])
            asked = [ModelCall(**{**each, "frames": frames(each["frames"])}) for each in record.get("model_calls", ())]
            own = {"error": error, "frames": frames(record["frames"]), "model_calls": asked}
            return CallRecord(**{**record, **own})

        turns = [Turn(**{**turn, "calls": [call(record) for record in turn["calls"]]}) for turn in data["turns"]]
        video = VideoInfo(**data["video"]) if data["video"] is not None else None
        more_videos = [VideoInfo(**info) for info in data.get("more_videos", ())]
        stop_reason = StopReason(data["stop_reason"]) if data["stop_reason"] is not None else None
        verification = data.get("verification")
        return cls(
            **{
                **data,
                "video": video,
                "more_videos": more_videos,
                "initial_frames": frames(data["initial_frames"]),
                "turns": turns,
                "stop_reason": stop_reason,
                "cache": CacheUse(**data.get("cache", {})),
                "verification": None if verification is None else Verification.from_dict(verification),
            }
        )


def _without_frames(call: CallRecord) -> CallRecord:
    return replace(call, frames=[], model_calls=[replace(exchange, frames=[]) for exchange in call.model_calls])


def _frame_dicts(frames: Sequence[FrameRecord]) -> list[dict[str, Any]]:
    return [frame.to_dict() for frame in frames]


def _leave_out(record: dict[str, Any], nothing: Mapping[str, Any]) -> None:
    for name, value in nothing.items():
        if record[name] == value:
            del record[name]


_LEFT_OUT: Mapping[str, Any] = {"visuals": "video", "provenance": None, "more_videos": [], "verification": None}
_LEFT_OUT_OF_CALLS: Mapping[str, Any] = {"text": None, "model_calls": []}
"""Fields that records hold only where they say something: few rollouts and calls have any."""


def _frames_in_words(indices: Sequence[int]) -> str:
    return f"{len(indices)} frames ({', '.join(map(str, indices[:3]))}, ...)"
