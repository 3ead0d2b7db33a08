"""Calls that are not carried out: which are surplus, and what the model may read of one."""

from __future__ import annotations

from dataclasses import replace

from verl_video_tools.core.errors import CallError, CallErrorCode
from verl_video_tools.core.types import CallRecord, ParsedTurn, ToolCall

UNKNOWN = "unknown"
"""Name under which a call is recorded that names no tool."""

_REPORTED_WITHOUT_REASON: dict[str, str] = {
    CallErrorCode.VIDEO_ERROR: "the frames could not be read",
    CallErrorCode.DEADLINE: "the frames could not be read",
    CallErrorCode.RETRIEVAL_ERROR: "frames could not be searched",
    CallErrorCode.MODEL_ERROR: "the model of this tool could not be asked",
}
"""Failures that are not the policy's. Their own words may name the file, and its name may hold the answer."""


def format_error(record: CallRecord) -> CallError:
    """The record's error; of a failure that is not the policy's no more than what it came to."""
    assert record.error is not None, "only a call that was not carried out has an error"
    code = record.error.code
    return CallError(code, _REPORTED_WITHOUT_REASON[code]) if code in _REPORTED_WITHOUT_REASON else record.error


def malformed_call(text: str, why: str, advice: str, name: str = UNKNOWN) -> ToolCall:
    """A call that cannot be read (`malformed_call`); its record holds the beginning of its text."""
    error = CallError(CallErrorCode.MALFORMED_CALL, f"{why}; {advice}")
    return ToolCall(name, {"text": text.strip()[:200]}, error)


def refuse_surplus_calls(parsed: ParsedTurn, max_calls: int) -> ParsedTurn:
    """The turn with its calls beyond the first `max_calls` refused (`multiple_calls`); malformed ones stay so."""
    error = CallError(CallErrorCode.MULTIPLE_CALLS, f"at most {max_calls} calls in one turn are carried out")
    surplus = (replace(call, error=call.error or error) for call in parsed.calls[max_calls:])
    return replace(parsed, calls=(*parsed.calls[:max_calls], *surplus))
