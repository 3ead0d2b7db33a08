"""One exception tree, and the codes by which a refused tool call is recorded.

    VideoToolsError
    ├── UsageError            the user asked for something that does not exist or does not fit (CLI exit code 2)
    ├── SetupError            the installation or its versions are wrong (`vvt doctor` names the fix)
    ├── RowError              a data row lacks or contradicts a needed field
    ├── VideoError            a video cannot be read
    │   ├── VideoNotFoundError
    │   ├── UnreadableVideoError
    │   ├── BackendError      the chosen decoder cannot deliver the right frames; try `pyav`
    │   ├── FrameRangeError   a time or index outside the video, a region outside the frame
    │   ├── ClosedVideoError  the reader is closed; the file may be opened again
    │   └── DeadlineError     decoding did not finish in time
    ├── CallRejected          one tool call is refused; carries a `CallErrorCode`
    ├── EndpointError         a model behind an endpoint gave no usable reply
    ├── RetrievalError        frames could not be searched by text (encoder unreachable, out of time, not configured)
    ├── ToolModelError        a tool's model could not be asked (unreachable, out of time, not configured)
    ├── JudgeError            a judge gave no verdict (unreachable, out of time, unreadable)
    ├── GroupScoreError       a method could not compare the rollouts of a group
    └── InvariantError        a rollout broke one of the loop's invariants (a bug: the rollout is flagged)

A bad rollout is data: inside a rollout these errors become stop reasons, call records and flags. Errors that the policy
causes (`CallRejected`) set no flag. Other errors flag the rollout, which keeps it out of training: `RowError`,
`VideoError`, `RetrievalError`, `ToolModelError`, `JudgeError`, `InvariantError`, and initial frames that do not fit the
budgets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class CallErrorCode(StrEnum):
    """Why a recognised tool call was not executed."""

    MALFORMED_CALL = "malformed_call"
    """The call does not follow the method's grammar (wrong syntax, missing or mistyped argument)."""
    UNKNOWN_TOOL = "unknown_tool"
    """The call names a tool that the method does not have."""
    WRONG_VIDEO = "wrong_video"
    """The call names another video than that of its question."""
    MULTIPLE_CALLS = "multiple_calls"
    """More calls in one turn than the method allows."""
    OUT_OF_RANGE = "out_of_range"
    """A time or frame number outside the video."""
    REVERSED_SEGMENT = "reversed_segment"
    """The segment ends before it starts."""
    SEGMENT_TOO_SHORT = "segment_too_short"
    """The segment holds fewer frames than the call returns."""
    UNKNOWN_FRAME = "unknown_frame"
    """The call names a picture that was not shown, or a picture of several frames."""
    REVERSED_BOX = "reversed_box"
    """The right edge of the box is left of its left edge, or the bottom above the top."""
    BOX_OUTSIDE = "box_outside"
    """The box is not inside the frame."""
    BOX_TOO_SMALL = "box_too_small"
    """The box covers fewer pixels than the call shows, or none."""
    TOO_MANY_FRAMES = "too_many_frames"
    """The call asks for more frames than the method allows."""
    TURN_LIMIT = "turn_limit"
    """The call came in the last allowed turn, so the policy could not read its observation."""
    NOT_EXECUTED = "not_executed"
    """Another call of the turn was refused or failed and ended the rollout, so this call was not executed."""
    PROMPT_BUDGET = "prompt_budget"
    """The context of the next turn begins a new training sequence, whose prompt would not fit."""
    RESPONSE_BUDGET = "response_budget"
    """The observation would not fit into the rollout's response budget."""
    IMAGE_BUDGET = "image_budget"
    """The observation would exceed the number of images that the inference engine takes."""
    NOTHING_FOUND = "nothing_found"
    """The search has no result: no caption in the span, or none with the words."""
    MODEL_BUDGET = "model_budget"
    """The rollout has reached its limit of requests to the tool's model."""
    NO_REPLY = "no_reply"
    """The tool's model was reached, and gave no usable reply."""
    VIDEO_ERROR = "video_error"
    """The bound video could not be decoded for this call."""
    RETRIEVAL_ERROR = "retrieval_error"
    """Frames could not be searched by text."""
    MODEL_ERROR = "model_error"
    """The tool's model could not be asked: not configured, or not reached."""
    DEADLINE = "deadline"
    """The tool did not finish in time."""


FAILURE_CODES = frozenset(
    {
        CallErrorCode.VIDEO_ERROR,
        CallErrorCode.RETRIEVAL_ERROR,
        CallErrorCode.MODEL_ERROR,
        CallErrorCode.DEADLINE,
    }
)
"""Codes of calls that failed through no fault of the policy; they keep the rollout out of training."""


INTACT_CODES = frozenset({CallErrorCode.RETRIEVAL_ERROR, CallErrorCode.MODEL_ERROR})
"""Failure codes after which the video can still be read: the policy reads the error, and the rollout continues."""


EMPTY_CODES = frozenset({CallErrorCode.NOTHING_FOUND, CallErrorCode.NO_REPLY})
"""Codes of valid calls without a result, which the policy cannot know beforehand: the rollout continues and is trained
on, even if a refused call would end it."""


BUDGET_CODES = frozenset({CallErrorCode.PROMPT_BUDGET, CallErrorCode.RESPONSE_BUDGET, CallErrorCode.IMAGE_BUDGET})
"""Codes of calls whose observation did not fit a budget."""


@dataclass(frozen=True, slots=True)
class CallError:
    """Why one call was not executed. Records and models have it as ``"<code>: <message>"``.

    Attributes:
        code: machine-readable reason. The record of another version may hold an unknown code.
        message: what was wrong, the value, and what would be accepted.
    """

    code: CallErrorCode | str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.code else self.message

    @classmethod
    def parse(cls, text: str) -> CallError:
        """The inverse of `str`. A text without a code is a message."""
        code, separator, message = text.partition(": ")
        if not code or not separator:
            return cls("", text)
        return cls(CallErrorCode(code) if code in set(CallErrorCode) else code, message)


class VideoToolsError(Exception):
    """Base of all errors of this package."""


class PolicyError(VideoToolsError):
    """A policy cannot give its next turn through no fault of its own; its rollout is aborted."""


class UsageError(VideoToolsError, ValueError):
    """The user asked for something that does not exist or does not fit together."""


@contextmanager
def writing(path: str | os.PathLike[str], advice: str) -> Iterator[None]:
    """For a block that writes a file or folder that the user named; `advice` says what to name instead.

    Raises:
        UsageError: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


class SetupError(VideoToolsError, RuntimeError):
    """The installation, its versions or its registrations are wrong."""


class RowError(VideoToolsError, ValueError):
    """A data row lacks a needed field or contradicts itself."""


class VideoError(VideoToolsError):
    """A video cannot be read."""


class VideoNotFoundError(VideoError, FileNotFoundError):
    """The video file does not exist."""


class UnreadableVideoError(VideoError):
    """The file exists but holds no decodable video stream."""


class BackendError(VideoError):
    """The chosen video backend fails on this file, or would return another frame than the requested one."""


class FrameRangeError(VideoError, ValueError):
    """A time or a frame index lies outside the video, or a region outside the frame."""


class ClosedVideoError(VideoError):
    """The reader was closed, by its user or after an error of its file or index; the file may be opened again."""


class DeadlineError(VideoError, TimeoutError):
    """Decoding did not finish before its deadline."""


class CallRejected(VideoToolsError):
    """One tool call is refused; the rollout goes on or ends by the method's policy.

    Args:
        code: machine-readable reason.
        message: what was wrong, the value, and what would be accepted; the model may read it.
    """

    def __init__(self, code: CallErrorCode, message: str) -> None:
        super().__init__(code, message)  # both as args, so that the exception survives Ray's pickling
        self.code = code
        self.message = message

    @property
    def error(self) -> CallError:
        """The refusal as a call's record holds it."""
        return CallError(self.code, self.message)

    def __str__(self) -> str:
        return str(self.error)


class EndpointError(VideoToolsError):
    """A model behind an endpoint gave no usable reply: not reached, out of time, refused, or unreadable."""


class RetrievalError(VideoToolsError):
    """Frames could not be searched by text: no encoder, not reached, or out of time. It never means an empty result."""


class ToolModelError(VideoToolsError):
    """The model behind a tool could not be asked: not configured, not reached, or out of time."""


class JudgeError(VideoToolsError):
    """A judge gave no verdict on an answer: not reached, out of time, or its reply cannot be read.

    It never counts as a wrong answer: the rollout is flagged, or the run stops.
    """


class GroupScoreError(VideoToolsError):
    """A method's `score_group` raised, or returned invalid rewards; the rollouts of the group are flagged."""


class InvariantError(VideoToolsError, AssertionError):
    """A finished rollout broke an invariant between its tokens, mask, log-probabilities and images."""
