"""What a VideoZoomer rollout is shown after its system prompt, as templates.

The order and the tags of the reference profile are the published ones, and so is what its errors state; the words of
its sentences are ours, until a user's `templates_file` brings those of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videozoomer.grammar import labelled_frames
from verl_video_tools.methods.videozoomer.video_zoom import (
    UNREADABLE,
    frames_asked_reference,
    numbers_reference,
)

_GO_ON = " between <think> and </think>, then {} or give your answer between <answer> and </answer>."
_ANSWER_NOW = (
    " between <think> and </think>. No zoom is left, so do not write <video_zoom> again: "
    "give your answer between <answer> and </answer> now."
)
_OF_FRAMES = "frames", "Think about what they show", "zoom in again"
_OF_ERROR = "error", "Think about what was wrong", "zoom in with a correct request"
"""Placeholder of a message, what to think about, and what may be done next."""
_FRAMES = "<tool_response>\nThe frames of your zoom:\n{frames}\n</tool_response>\n"
_ERROR = "<tool_response>\nError: {error}\n</tool_response>\n"
_USER = vt.Template("{frames}\n{question}", once=("frames", "question"))


def _both(name: str, text: str, last: str | None = None) -> dict[str, vt.Template]:
    """A message, and the one in its place before the last turn.

    Args:
        last: what the latter adds to the former; None: its end is `_ANSWER_NOW` instead.
    """
    placeholder, advice, again = _OF_FRAMES if name == "observation" else _OF_ERROR
    go_on = text + advice + _GO_ON.format(again)
    return {
        name: vt.Template(go_on, once=(placeholder,)),
        f"{name}_last": vt.Template(text + advice + _ANSWER_NOW if last is None else go_on + last, once=(placeholder,)),
    }


STRICT: Mapping[str, vt.Template] = {
    "user": _USER,
    **_both("observation", _FRAMES),
    **_both("refusal", _ERROR),
    **_both("unreadable", _ERROR),
}

_NO_ZOOM_LEFT = "No zoom is left, so do not write <video_zoom> again: give your answer now."
"""The published code adds it without a space before it."""


REFERENCE: Mapping[str, vt.Template] = {
    "user": _USER,
    **_both("observation", _FRAMES, _NO_ZOOM_LEFT),
    # The second tag of a refusal lacks its slash in the published code, and no line break follows it.
    **_both("refusal", "<tool_response>\nError: {error}<tool_response>", _NO_ZOOM_LEFT),
    **_both("unreadable", "<tool_response>\nERROR: {error}.\n</tool_response>\n", _NO_ZOOM_LEFT),
    "too_many_frames": vt.Template(
        "{num_frames} frames are more than the {max_frames} that a zoom shows.", optional=("num_frames", "max_frames")
    ),
    "no_numbers": vt.Template("cannot read segment and fps of {request}: {reason}", optional=("reason", "request")),
}
"""`too_many_frames` and `no_numbers` are what stands for ``{error}`` in a refusal and in an unreadable request."""


def observation(method: vt.Method, outcome: vt.ToolOutcome, max_frames: int, turns_left: int) -> vt.Content:
    """What the model reads after a request: the frames of the zoom, or why there are none.

    Args:
        max_frames: frames of a zoom at most.
    """
    last = "_last" if turns_left <= 1 else ""
    record = outcome.record
    if record.ok:
        frames = vt.with_text(outcome, labelled_frames(outcome.images))
        return vt.render(method, f"observation{last}", frames=frames)
    error = vt.format_error(record)
    name = "unreadable" if error.code == vt.CallErrorCode.MALFORMED_CALL else "refusal"
    reason = _reason_reference(method, record, error, max_frames) if method.compat == "reference" else str(error)
    return vt.render(method, f"{name}{last}", error=reason)


def _reason_reference(method: vt.Method, record: vt.CallRecord, error: vt.CallError, max_frames: int) -> str:
    """The reason as published, which names no code."""
    if error.code == vt.CallErrorCode.TOO_MANY_FRAMES:
        asked = frames_asked_reference(*numbers_reference(record.arguments))
        return vt.content_text(vt.render(method, error.code, num_frames=str(asked), max_frames=str(max_frames)))
    is_json = record.arguments.keys() != {"request"}
    if error.code != vt.CallErrorCode.MALFORMED_CALL or not is_json:
        return error.message
    try:
        numbers_reference(record.arguments)
    except UNREADABLE as reason:
        return vt.content_text(vt.render(method, "no_numbers", reason=str(reason), request=str(record.arguments)))
    return error.message
