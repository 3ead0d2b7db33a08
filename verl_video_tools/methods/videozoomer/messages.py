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
_ADVICE = {"observation": "Think about what they show", "refusal": "Think about what was wrong"}
_AGAIN = {"observation": "zoom in again", "refusal": "zoom in with a correct request"}
_FRAMES = "<tool_response>\nThe frames of your zoom:\n{frames}\n</tool_response>\n"
_ERROR = "<tool_response>\nError: {error}\n</tool_response>\n"
_USER = vt.Template("{frames}\n{question}", once=("frames", "question"))


def _both(name: str, text: str, placeholder: str, kind: str) -> dict[str, vt.Template]:
    """A message, and the one in its place before the last turn."""
    advice = _ADVICE[kind]
    return {
        name: vt.Template(text + advice + _GO_ON.format(_AGAIN[kind]), once=(placeholder,)),
        f"{name}_last": vt.Template(text + advice + _ANSWER_NOW, once=(placeholder,)),
    }


STRICT: Mapping[str, vt.Template] = {
    "user": _USER,
    **_both("observation", _FRAMES, "frames", "observation"),
    **_both("refusal", _ERROR, "error", "refusal"),
    **_both("unreadable", _ERROR, "error", "refusal"),
}

_NO_ZOOM_LEFT = "No zoom is left, so do not write <video_zoom> again: give your answer now."


def _published(name: str, text: str, placeholder: str, kind: str) -> dict[str, vt.Template]:
    """As `_both`; before the last turn the published code adds a sentence, without a space before it."""
    text += _ADVICE[kind] + _GO_ON.format(_AGAIN[kind])
    return {
        name: vt.Template(text, once=(placeholder,)),
        f"{name}_last": vt.Template(text + _NO_ZOOM_LEFT, once=(placeholder,)),
    }


REFERENCE: Mapping[str, vt.Template] = {
    "user": _USER,
    **_published("observation", _FRAMES, "frames", "observation"),
    # The second tag of a refusal lacks its slash in the published code, and no line break follows it.
    **_published("refusal", "<tool_response>\nError: {error}<tool_response>", "error", "refusal"),
    **_published("unreadable", "<tool_response>\nERROR: {error}.\n</tool_response>\n", "error", "refusal"),
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
        return vt.render(method, f"observation{last}", frames=labelled_frames(outcome.images))
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
