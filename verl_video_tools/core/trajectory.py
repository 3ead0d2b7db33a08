"""Calls, turns and the record of a whole rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from verl_video_tools.core.errors import BUDGET_CODES, EMPTY_CODES, FAILURE_CODES, CallError
from verl_video_tools.core.frames import FrameRecord, FrameRequest, VideoInfo
from verl_video_tools.core.messages import ImagePart
from verl_video_tools.core.services import ModelCall

JUDGE_FLAG = "judge"
"""Flag of a rollout without a verdict of its judge."""
REWARD_FLAG = "reward"
"""Flag of a rollout whose reward its method failed to compute."""
GROUP_SCORE_FLAG = "group_score"
"""Flag of rollouts whose method failed to compare the group."""


class StopReason(StrEnum):
    """Why a rollout ended. The rate of each reason is logged."""

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
    """A parsed call. A malformed call has an `error`."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: CallError | None = None


@dataclass(frozen=True)
class ParsedTurn:
    """One assistant turn, parsed by the method's grammar. Parsing never raises.

    Attributes:
        thought: text of the thinking block, None if there is none.
        calls: all recognised calls, also malformed ones.
        answer: text of the answer, stripped; None if the turn does not answer.
        summary: text that the turn passes to the next turn, if the method's grammar has it.
        well_formed: the turn follows the method's grammar exactly, as a format reward requires.
        answer_is_open: nothing in the turn ends its answer, so a turn that was cut by its token limit has none.
    """

    thought: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    well_formed: bool = False
    summary: str | None = None
    answer_is_open: bool = False


@dataclass(frozen=True)
class ToolPlan:
    """The result of a call, planned before a frame of it is decoded: frames, facts, text and pictures."""

    frames: FrameRequest | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able facts, e.g. ``{"frame_number": 815}``; kept in the record, for rewards."""
    text: str | None = None
    """Text of the result, alone or before the frames. It is recorded and counts towards the budget."""
    pictures: tuple[npt.NDArray[np.uint8], ...] = field(default=(), compare=False)
    """Pictures that the tool has made, RGB (height, width, 3), shown before the frames. They are resized to the
    processor's bounds, recorded as PNG, and count towards the budget. Their pixels may depend on the call and the video
    alone: fine-tuning makes them again."""


@dataclass(frozen=True)
class ToolPicture:
    """A picture that a tool has made, in the record of its call.

    Attributes:
        digest: of the pixels as the tool made them.
        width, height: as it was shown.
        png: the file of what was shown, in base64.
    """

    digest: str
    width: int
    height: int
    png: str = field(repr=False)


@dataclass
class CallRecord:
    """One executed, refused or failed call.

    `ok` is true once the result is in an observation. A call that was planned in a turn without an observation is not
    executed: it has no frames and no result.
    """

    name: str
    arguments: dict[str, Any]
    ok: bool
    error: CallError | None = None
    frames: list[FrameRecord] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    latency_ms: float = 0.0
    retrieved_frames: list[list[int]] = field(default_factory=list)
    """The retriever's results while the call was planned: a list of frame indices per query, the best first."""
    text: str | None = None
    """Text of the result (`ToolPlan.text`); None without."""
    model_calls: list[ModelCall] = field(default_factory=list)
    """The tool's requests to its model while the call was planned, in order, including failed ones."""
    pictures: list[ToolPicture] = field(default_factory=list)
    """Pictures that the tool has made (`ToolPlan.pictures`). Records have this key if there are any."""

    def failed(self) -> bool:
        """Whether the call failed through no fault of the policy (`errors.FAILURE_CODES`)."""
        return self.error is not None and self.error.code in FAILURE_CODES

    def refused(self) -> bool:
        """Whether the policy is the reason that the call was not executed. A valid call without a result
        (`errors.EMPTY_CODES`) is not refused."""
        is_empty = self.error is not None and self.error.code in EMPTY_CODES
        return not (self.ok or self.failed() or is_empty)

    def exceeded_budget(self) -> bool:
        """Whether the call was refused because its observation did not fit a budget (`errors.BUDGET_CODES`)."""
        return self.error is not None and self.error.code in BUDGET_CODES


@dataclass(frozen=True)
class ToolOutcome:
    """A call's record, its images in the order of `record.frames`, the video, and the pictures that its tool has made,
    in the order of `record.pictures`."""

    record: CallRecord
    images: tuple[ImagePart, ...] = ()
    video: VideoInfo | None = None
    pictures: tuple[ImagePart, ...] = ()


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
    """The turn reached its token limit."""
    reasoning: str | None = None
    """Native reasoning before `text`, which is not the method's thought."""
    rewards: dict[str, float] = field(default_factory=dict)
    """The method's `turn_components` of this turn, which `Method.score` writes. Records have this key if there are
    any."""


@dataclass
class CacheUse:
    """Use of the process's frame cache by a rollout."""

    hits: int = 0
    """Frames from the cache."""
    misses: int = 0
    """Decoded frames."""
    stored_bytes: int = 0
    """Size of the cache at the rollout's last request of frames."""


@dataclass
class Verification:
    """A further request to the policy that holds frames alone (`Method.verification_context`).

    Attributes:
        frames: the frames in their order.
        text: the reply; None without a reply.
        error: the reason without a reply: the request did not fit, or the policy has no further turn.
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
    """The record of a rollout, which rewards, the viewer, exports and evaluation read."""

    method: str
    question: str
    video: VideoInfo | None = None
    initial_frames: list[FrameRecord] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason | None = None
    answer: str | None = None
    error: str | None = None
    """The error message with `video_error` and `aborted`."""
    flags: list[str] = field(default_factory=list)
    """Reasons to keep the rollout out of training (broken invariant, judge failure, infrastructure error)."""
    cache: CacheUse = field(default_factory=CacheUse)
    retrieved_frames: list[list[int]] = field(default_factory=list)
    """The retriever's results for the initial frames, as `CallRecord.retrieved_frames` for a call."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the method that differ within a group by design (FrameMind's rung). `core.method.method_of_rollout`
    applies them to the run's method."""
    prompt_digest: str | None = None
    """Digest of the user's system prompt (`core.prompts.prompt_digest`); None for the packaged prompt."""
    more_videos: list[VideoInfo] = field(default_factory=list)
    """The videos after `video` in a row with several. Records have this key if there are any."""
    visuals: Literal["video", "images", "none"] = "video"
    """What the question is about. `images` are the `initial_frames`, by their numbers in the row. Without a video,
    `video` is None and records have this key."""
    provenance: dict[str, Any] | None = None
    """`Method.provenance`: facts of the method beside its name."""
    verification: Verification | None = None
    """The policy's reply to a request of frames alone. Records have this key if there was such a request."""

    def is_lost(self) -> bool:
        """Whether the rollout says nothing about the policy: the video was not opened or not read, or the rollout was
        aborted."""
        is_unopened = self.video is None and self.visuals == "video"
        return is_unopened or self.stop_reason in (StopReason.VIDEO_ERROR, StopReason.ABORTED)

    def initial_frame_indices(self) -> list[int]:
        """Indices of the initial frames."""
        return [frame.index for frame in self.initial_frames]

    def initial_frames_difference(self, recorded: Sequence[int]) -> str | None:
        """How the initial frames of this replay differ from those of the recorded rollout; None if they are the same.

        Sizes may differ, because a teacher behind an endpoint may get larger frames.
        """
        if list(recorded) == self.initial_frame_indices():
            return None
        return (
            f"its rollout was first shown {_frames_in_words(recorded)}, and is replayed with "
            f"{_frames_in_words(self.initial_frame_indices())}"
        )

    def picture_digests(self) -> list[str]:
        """Of the pictures that tools have made, in order."""
        return [picture.digest for call in self.calls() for picture in call.pictures]

    def calls(self) -> list[CallRecord]:
        return [call for turn in self.turns for call in turn.calls]

    def executed_calls(self) -> list[CallRecord]:
        return [call for call in self.calls() if call.ok]

    def is_well_formed(self) -> bool:
        """Whether the rollout answers, and every turn follows the method's grammar exactly."""
        return self.stop_reason is StopReason.ANSWER and all(turn.well_formed for turn in self.turns)

    def counts(self) -> dict[str, int]:
        executed = self.executed_calls()
        return {
            "assistant_turns": len(self.turns),
            "executed_calls": len(executed),
            "initial_frames": len(self.initial_frames),
            "tool_frames": sum(len(call.frames) for call in executed),
        }

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON; `from_dict` is the inverse. The error of a call is a text, as `CallError` writes it."""
        # Without frames, because `asdict` takes 30 ms for 752 frames, on the event loop of all rollouts.
        turns = [replace(turn, calls=[_without_frames(call) for call in turn.calls]) for turn in self.turns]
        data = asdict(replace(self, initial_frames=[], turns=turns, verification=None))
        data["verification"] = None if self.verification is None else self.verification.to_dict()
        data["initial_frames"] = _frame_dicts(self.initial_frames)
        data["video"] = None if self.video is None else self.video.to_dict()
        data["more_videos"] = [info.to_dict() for info in self.more_videos]
        _leave_out(data, _LEFT_OUT)
        for turn in data["turns"]:
            _leave_out(turn, _LEFT_OUT_OF_TURNS)
        records = [record for turn in data["turns"] for record in turn["calls"]]
        for call, record in zip(self.calls(), records, strict=True):
            record["frames"] = _frame_dicts(call.frames)
            for exchange, recorded in zip(call.model_calls, record["model_calls"], strict=True):
                recorded["frames"] = _frame_dicts(exchange.frames)
            record["error"] = None if call.error is None else str(call.error)
            _leave_out(record, _LEFT_OUT_OF_CALLS)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trajectory:
        def frames(records: Sequence[Mapping[str, Any]]) -> list[FrameRecord]:
            return [FrameRecord.from_dict(record) for record in records]

        def call(record: Mapping[str, Any]) -> CallRecord:
            error = None if record.get("error") is None else CallError.parse(record["error"])
            exchanges = [
                ModelCall(**{**each, "frames": frames(each["frames"])}) for each in record.get("model_calls", ())
            ]
            pictures = [ToolPicture(**picture) for picture in record.get("pictures", ())]
            parsed = {
                "error": error,
                "frames": frames(record["frames"]),
                "model_calls": exchanges,
                "pictures": pictures,
            }
            return CallRecord(**{**record, **parsed})

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


def _leave_out(record: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    for name, value in defaults.items():
        if record[name] == value:
            del record[name]


_LEFT_OUT: Mapping[str, Any] = {"visuals": "video", "provenance": None, "more_videos": [], "verification": None}
_LEFT_OUT_OF_TURNS: Mapping[str, Any] = {"rewards": {}}
_LEFT_OUT_OF_CALLS: Mapping[str, Any] = {"text": None, "model_calls": [], "pictures": []}
"""Defaults of keys that records leave out."""


def _frames_in_words(indices: Sequence[int]) -> str:
    return f"{len(indices)} frames ({', '.join(map(str, indices[:3]))}, ...)"
