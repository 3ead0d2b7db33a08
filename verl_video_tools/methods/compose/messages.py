"""The messages of a composition, as templates: the key `messages` of its file, and after it `templates_file`.

| name | written | placeholders |
|---|---|---|
| `user` | after the system prompt | `question`, `frames`, `duration`, `num_frames`, `fps` |
| `frame` | for each frame | `image`, `seconds`, `index` (number in the video), `position` (place among those shown) |
| `picture` | for a picture of a part of a frame, or of several frames | `image`, `label` (its times, and the part) |
| `between_frames` | between two frames | |
| `observation` | after a call that shows frames | `frames` |
| `result` | after a call that shows none: what it says, else its result | `text` |
| `refusal` | after a call that was refused or failed | `error`, `duration` |
| `between` | between the answers to two calls | |
| `nothing` | where a turn goes on without a call | |
| `turn` | around the answers to a turn | `observations`, `turn` (number of the next one), `max_turns` |

`observation`, `result` and `refusal` have a second form, such as `observation_last`, for what is read before the last
turn; without it the first form holds there, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from verl_video_tools.core.templates import formatted_placeholder
from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.compose.section import Section
from verl_video_tools.methods.compose.tools import OfferedTool

_PLACEHOLDER = re.compile(r"(?<!\w)\{([a-z_]+)\}")  # and not \boxed{answer}

DEFAULTS: Mapping[str, vt.Template] = {
    "user": vt.Template(
        "{question}\n\n{frames}", once=("question", "frames"), optional=("duration", "num_frames", "fps")
    ),
    "frame": vt.Template(
        "frame {index} at {seconds}s: {image}", once=("image",), optional=("index", "seconds", "position")
    ),
    "picture": vt.Template("{label}: {image}", once=("image", "label")),
    "between_frames": vt.Template("\n"),
    "observation": vt.Template("{frames}", once=("frames",)),
    "result": vt.Template("{text}", once=("text",)),
    "refusal": vt.Template("Error: {error}", optional=("error", "duration")),
    "between": vt.Template("\n"),
    "nothing": vt.Template(""),
    "turn": vt.Template("{observations}", once=("observations",), optional=("turn", "max_turns")),
}
_WITH_LAST = ("observation", "result", "refusal")
NAMES = (*DEFAULTS, *(f"{name}_last" for name in _WITH_LAST))


def read_templates(section: Section, of_grammar: Mapping[str, str]) -> dict[str, vt.Template]:
    """All templates, by name: those of the section `messages`, else the grammar's, else the defaults.

    Raises:
        UsageError: an unknown name, or a text that holds a placeholder wrongly.
    """
    section.check_keys((*NAMES, "decimals"))
    given = {**of_grammar, **{name: section.text(name) for name in section.values if name != "decimals"}}
    templates = {}
    for name in NAMES:
        known = DEFAULTS[name.removesuffix("_last")]
        text = given.get(name, given.get(name.removesuffix("_last"), known.text))
        _check(section, name, text, known)
        templates[name] = vt.Template(text, known.once, known.optional)
    return templates


def _check(section: Section, name: str, text: str, known: vt.Template) -> None:
    held = _PLACEHOLDER.findall(text)
    if wrong := [placeholder for placeholder in known.once if held.count(placeholder) != 1]:
        raise section.fault(name, f"must hold {{{wrong[0]}}} exactly once, got {text!r:.80}")
    allowed = (*known.once, *known.optional)
    if strange := [placeholder for placeholder in held if placeholder not in allowed]:
        listed = ", ".join(f"{{{placeholder}}}" for placeholder in allowed) or "none"
        raise section.fault(name, f"holds {{{strange[0]}}}, which nothing fills; its placeholders are: {listed}")
    if formatted := formatted_placeholder(text, allowed):
        raise section.fault(name, f"holds {formatted}, which nothing fills: set `decimals`, and write the name alone")


def labelled(method: vt.Method, images: Sequence[vt.ImagePart], decimals: int) -> vt.Content:
    """The frames, each in its template, and what stands between them."""
    content: list[str | vt.ImagePart] = []
    for position, image in enumerate(images):
        content += vt.render(method, "between_frames") if position else ()
        content += _frame(method, image, position, decimals)
    return tuple(content)


def _frame(method: vt.Method, image: vt.ImagePart, position: int, decimals: int) -> vt.Content:
    record = image.record
    return vt.render(
        method,
        "frame",
        image=(image,),
        index=str(record.index),
        seconds=f"{record.timestamp_seconds:.{decimals}f}",
        position=str(position),
    )


def observation(
    method: vt.Method,
    tools: Mapping[str, OfferedTool],
    outcomes: Sequence[vt.ToolOutcome],
    turns_left: int,
    decimals: int,
) -> vt.Content:
    """What answers the calls of a turn, in their order."""
    last = "_last" if turns_left <= 1 else ""
    parts: list[str | vt.ImagePart] = []
    for number, outcome in enumerate(outcomes):
        parts += vt.render(method, "between") if number else ()
        parts += _answer(method, tools, outcome, last, decimals)
    if not outcomes:
        parts += vt.render(method, "nothing")
    turn = method.max_turns - turns_left + 1
    return vt.render(method, "turn", observations=tuple(parts), turn=str(turn), max_turns=str(method.max_turns))


def _answer(
    method: vt.Method, tools: Mapping[str, OfferedTool], outcome: vt.ToolOutcome, last: str, decimals: int
) -> vt.Content:
    record = outcome.record
    if not record.ok:
        duration = "" if outcome.video is None else vt.format_seconds(outcome.video.duration_seconds)
        return vt.render(method, f"refusal{last}", error=str(vt.format_error(record)), duration=duration)
    offered = tools.get(record.name)  # None in an estimate of what a call costs, which names no tool
    if outcome.images:
        frames = vt.with_text(outcome, _pictures(method, offered, outcome, decimals))
        return vt.render(method, f"observation{last}", frames=frames)
    return vt.render(method, f"result{last}", text=_told(offered, record))


def _told(offered: OfferedTool | None, record: vt.CallRecord) -> str:
    if record.text is not None:
        return record.text
    if offered is not None and (in_words := offered.description.result_text) is not None:
        return in_words(record.arguments, record.result)
    return json.dumps(record.result, ensure_ascii=False)


def _pictures(method: vt.Method, offered: OfferedTool | None, outcome: vt.ToolOutcome, decimals: int) -> vt.Content:
    """As `labelled`; a part of a frame, or a grid of frames, with what of the video it is."""
    content: list[str | vt.ImagePart] = []
    unit: vt.BoxUnit = getattr(offered.tool, "unit", "pixels") if offered else "pixels"
    for position, image in enumerate(outcome.images):
        content += vt.render(method, "between_frames") if position else ()
        if outcome.video is not None and (image.record.region is not None or image.record.tiles):
            label = vt.picture_label(image.record, outcome.video, unit)
            content += vt.render(method, "picture", image=(image,), label=label)
        else:
            content += _frame(method, image, position, decimals)
    return tuple(content)
