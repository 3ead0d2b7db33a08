"""What a LongVT rollout is shown after its system prompt, as templates.

Order, tags and the phrases around frames, errors and the path are the published ones in the reference profile; the
reasons of its errors are in our words, until a user's `templates_file` brings those of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verl_video_tools.core.templates import HasTemplates
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.longvt.crop_video_reference import format_values

_FRAMES, _ERROR = ("frames",), ("error",)


STRICT: Mapping[str, vt.Template] = {
    "user": vt.Template("{question}\n\n{frames}", once=("frames", "question"), optional=("path",)),
    "observation": vt.Template("<tool_response>\n{frames}\n</tool_response>", once=_FRAMES),
    "refusal": vt.Template("<tool_response>\nError: {error}\n</tool_response>", once=_ERROR),
    "between": vt.Template("\n"),
}
"""Ours: the question before the frames."""

REFERENCE: Mapping[str, vt.Template] = {
    "user": vt.Template(
        "{frames}{question}\n The Video path for this video is: {path}",
        once=("frames", "question"),
        optional=("path",),
    ),
    "observation": vt.Template(
        "<tool_response>\n{frames}The tool executed successfully. Here are the processed result</tool_response>",
        once=_FRAMES,
    ),
    "refusal": vt.Template(
        "<tool_response>\nTool execution failed: Error executing tool crop_video: {error}</tool_response>", once=_ERROR
    ),
    "between": vt.Template(""),
    "path_missing": vt.Template("video_path is missing"),
    "start_missing": vt.Template("start_time is missing"),
    "end_missing": vt.Template("end_time is missing"),
    "path_empty": vt.Template("video_path is empty"),
    "start_negative": vt.Template("start_time {start} is below 0", optional=("start", "end")),
    "end_not_after_start": vt.Template("end_time {end} is not after start_time {start}", optional=("start", "end")),
    "file_missing": vt.Template("there is no video {path}", optional=("path",)),
    "start_beyond": vt.Template(
        "start_time {start} is not before the end of the video, {duration} s", optional=("start", "end", "duration")
    ),
    "end_beyond": vt.Template(
        "end_time {end} is after the end of the video, {duration} s", optional=("start", "end", "duration")
    ),
    "too_short": vt.Template("there are no two frames between {start} and {end} s", optional=("start", "end", "path")),
    "wrong_types": vt.Template("times must be numbers, and video_path a text", optional=("arguments",)),
}
"""`between` stands between two replies; what follows it are the reasons that stand for ``{error}``, one for each check
of the published tool. A failure that is none of them is reported as it is."""


_REASONS = REFERENCE.keys() - {"user", "observation", "refusal", "between"}


def observation(
    method: HasTemplates,
    compat: vt.Compat,
    outcomes: Sequence[vt.ToolOutcome],
    labelled: Callable[[Sequence[vt.ImagePart]], vt.Content],
) -> vt.Content:
    """The replies to a turn's calls, in order. `labelled` gives frames with their times."""
    parts: list[vt.Content] = []
    for outcome in outcomes:
        parts.append(() if not parts else vt.render(method, "between"))
        if outcome.record.ok:
            parts.append(vt.render(method, "observation", frames=vt.with_text(outcome, labelled(outcome.images))))
        else:
            parts.append(vt.render(method, "refusal", error=_reason(method, compat, outcome)))
    return tuple(piece for part in parts for piece in part)


def _reason(method: HasTemplates, compat: vt.Compat, outcome: vt.ToolOutcome) -> str:
    if compat == "strict":
        return str(vt.format_error(outcome.record))
    message = vt.format_error(outcome.record).message
    name = message.partition(":")[0]
    if name not in _REASONS:
        return message
    return vt.content_text(vt.render(method, name, **format_values(outcome.record.arguments, outcome.video)))
