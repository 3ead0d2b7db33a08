"""What a LongVT rollout is shown after its system prompt, as templates.

Order, tags and the phrases around frames, errors and the path are the published ones in the reference profile; the
reasons of its errors are in our words, until a user's `templates_file` brings those of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verl_video_tools.core.templates import HasTemplates, Template, render
from verl_video_tools.core.types import Compat, Content, ImagePart, ToolOutcome, content_text
from verl_video_tools.methods.longvt.crop_video_reference import format_values
from verl_video_tools.methods.toolkit.refusals import format_error

_FRAMES, _ERROR = ("frames",), ("error",)


def strict_templates(tell_video_path: bool) -> Mapping[str, Template]:
    """Ours: the question before the frames."""
    path = "\n\nPath of the video: {path}" if tell_video_path else ""
    return {
        "user": Template("{question}\n\n{frames}" + path, once=("frames", "question"), optional=("path",)),
        "observation": Template("<tool_response>\n{frames}\n</tool_response>", once=_FRAMES),
        "refusal": Template("<tool_response>\nError: {error}\n</tool_response>", once=_ERROR),
        "between": Template("\n"),
    }


REFERENCE: Mapping[str, Template] = {
    "user": Template(
        "{frames}{question}\n The Video path for this video is: {path}",
        once=("frames", "question"),
        optional=("path",),
    ),
    "observation": Template(
        "<tool_response>\n{frames}The tool executed successfully. Here are the processed result</tool_response>",
        once=_FRAMES,
    ),
    "refusal": Template(
        "<tool_response>\nTool execution failed: Error executing tool crop_video: {error}</tool_response>", once=_ERROR
    ),
    "between": Template(""),
    "path_missing": Template("video_path is missing"),
    "start_missing": Template("start_time is missing"),
    "end_missing": Template("end_time is missing"),
    "path_empty": Template("video_path is empty"),
    "start_negative": Template("start_time {start} is below 0", optional=("start", "end")),
    "end_not_after_start": Template("end_time {end} is not after start_time {start}", optional=("start", "end")),
    "file_missing": Template("there is no video {path}", optional=("path",)),
    "start_beyond": Template(
        "start_time {start} is not before the end of the video, {duration} s", optional=("start", "end", "duration")
    ),
    "end_beyond": Template(
        "end_time {end} is after the end of the video, {duration} s", optional=("start", "end", "duration")
    ),
    "too_short": Template("there are no two frames between {start} and {end} s", optional=("start", "end", "path")),
    "wrong_types": Template("times must be numbers, and video_path a text", optional=("arguments",)),
}
"""`between` stands between two replies; what follows it are the reasons that stand for ``{error}``, one for each check
of the published tool. A failure that is none of them is told as it is."""


_REASONS = REFERENCE.keys() - {"user", "observation", "refusal", "between"}


def observation(
    method: HasTemplates,
    compat: Compat,
    outcomes: Sequence[ToolOutcome],
    labelled: Callable[[Sequence[ImagePart]], Content],
) -> Content:
    """The replies to a turn's calls, in order. `labelled` gives frames with their times."""
    parts: list[Content] = []
    for outcome in outcomes:
        parts.append(() if not parts else render(method, "between"))
        if outcome.record.ok:
            parts.append(render(method, "observation", frames=labelled(outcome.images)))
        else:
            parts.append(render(method, "refusal", error=_reason(method, compat, outcome)))
    return tuple(piece for part in parts for piece in part)


def _reason(method: HasTemplates, compat: Compat, outcome: ToolOutcome) -> str:
    if compat == "strict":
        return str(format_error(outcome.record))
    message = format_error(outcome.record).message
    name = message.partition(":")[0]
    if name not in _REASONS:
        return message
    return content_text(render(method, name, **format_values(outcome.record.arguments, outcome.video)))
