"""Calls of a method's tools with good and bad arguments, planned without a video."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

from verl_video_tools.checks.candidates import description_of, documented_arguments, guessed_places
from verl_video_tools.checks.subject import Subject
from verl_video_tools.checks.world import without_file
from verl_video_tools.core.errors import CallRejected, SetupError, UsageError, VideoToolsError
from verl_video_tools.core.types import PixelEnvelope, Sample, Tool, ToolContext, ToolPlan, VideoInfo

_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, -0.5, 1, 2.5, 1e-9, 10**7, 10**30, -(10**30), 1e308, math.nan, math.inf, -math.inf),
    *(
        "",
        "A",
        "12",
        "1e3",
        "NaN",
        "0:10",
        "99:99",
        "999:59",
        "-1",
        "\ud800",
        "\x00",
        "x" * 5000,
        [],
        [1],
        {},
        {"a": 1},
    ),
    *(
        [1, 0],
        [0, 10**7],
        [-1, 1],
        ["a", "b"],
        [None, None],
        [math.nan, 1],
        [[1, 2]],
        list(range(100)),
        "no_such_file.mp4",
        "../other.mp4",
    ),
)


@dataclass(frozen=True)
class Probe:
    """One call that was planned: its plan, or what `plan` raised."""

    tool: str
    arguments: Mapping[str, Any]
    given: Mapping[str, Any]
    """The arguments as they were before the tool saw them."""
    plan: ToolPlan | None
    error: Exception | None

    def says(self) -> str:
        return f"{self.tool}({dict(self.given)!r:.160})"


def valid_arguments(subject: Subject, name: str) -> list[dict[str, Any]]:
    """Arguments of calls of a tool that were carried out."""
    return [dict(record.arguments) for record in subject.calls.records.get(name, ())]


Call = tuple[Tool, str, Mapping[str, Any]]
"""A tool, its name, and arguments."""


def plan_all(
    subject: Subject,
    calls: Iterable[Call],
    info: VideoInfo | None = None,
    envelope: PixelEnvelope | None = None,
    sample: Sample | None = None,
) -> list[Probe]:
    """Plan calls one after the other, on a video that cannot be opened."""
    context = subject.context(without_file(sample or subject.sample), info, envelope)

    async def plan_each() -> list[Probe]:
        return [await _plan(tool, name, arguments, context) for tool, name, arguments in calls]

    return subject.wait(plan_each())


async def _plan(tool: Tool, name: str, arguments: Mapping[str, Any], context: ToolContext) -> Probe:
    given = copy.deepcopy(dict(arguments))
    try:
        return Probe(name, arguments, given, await tool.plan(arguments, context), None)
    except Exception as error:
        return Probe(name, arguments, given, None, error)


def plan(
    subject: Subject,
    tool: Tool,
    name: str,
    arguments: Mapping[str, Any],
    info: VideoInfo | None = None,
    envelope: PixelEnvelope | None = None,
) -> Probe:
    """Plan one call, on a video that cannot be opened."""
    return plan_all(subject, [(tool, name, arguments)], info, envelope)[0]


def valid_probes(subject: Subject, info: VideoInfo | None = None, envelope: PixelEnvelope | None = None) -> list[Probe]:
    """The valid calls of each tool, and those with other numbers that are carried out, too."""
    calls = [
        (tool, name, arguments)
        for name, tool in subject.method.tools(info or subject.info).items()
        for valid in valid_arguments(subject, name)
        for arguments in (valid, *_scaled(valid), *_up_to_the_end(valid, info or subject.info))
    ]
    return [probe for probe in plan_all(subject, calls, info, envelope) if probe.plan is not None]


def bad_probes(subject: Subject, tools: Mapping[str, Tool] | None = None) -> list[Probe]:
    """Calls of each tool with arguments left out, of other types, out of range and out of order; and valid ones of a
    row that has neither subtitles nor options."""
    asked = (subject.method.tools(subject.info) if tools is None else tools).items()
    bad = [(tool, name, given) for name, tool in asked for given in _bad_arguments(subject, name, tool)]
    valid = [(tool, name, given) for name, tool in asked for given in valid_arguments(subject, name)]
    bare = replace(subject.sample, subtitles=(), options=())
    return [*plan_all(subject, bad), *plan_all(subject, valid, sample=bare)]


def _bad_arguments(subject: Subject, name: str, tool: Tool) -> Iterator[dict[str, Any]]:
    description = description_of(subject.method, name, tool)
    described = () if description is None else description.parameters
    told = dict.fromkeys([*described, *documented_arguments(tool)])
    yield {}
    for valid in [*valid_arguments(subject, name), dict.fromkeys(told, 1)][:2]:
        for parameter in dict.fromkeys([*valid, *told]):
            yield {key: value for key, value in valid.items() if key != parameter}
            yield from ({**valid, parameter: copy.deepcopy(odd)} for odd in _ODD_VALUES)
        yield from _scaled(valid)
        yield {**valid, "no_such_argument": 1}
    for valid in valid_arguments(subject, name)[:1]:  # a variant of the tool may take another place than it
        yield from (each for key, place in guessed_places(tool) for each in _scaled({**valid, key: place}))


def _scaled(valid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments with one number, or the numbers of one list, moved, and with numbers exchanged."""
    numbers = [key for key, value in valid.items() if _is_number(value)]
    for factor in (0, 0.25, 0.5, 0.99, 1.01, 1.5, 3, 1000):
        for key in numbers:
            yield {**valid, key: type(valid[key])(valid[key] * factor)}
    for first, second in pairwise(numbers):
        yield {**valid, first: valid[second], second: valid[first]}
        yield from ({**valid, second: valid[first] + more} for more in (0, 1e-3, 1))
    for key, value in valid.items():
        if isinstance(value, list) and value and all(map(_is_number, value)):
            yield {**valid, key: value[::-1]}
            yield {**valid, key: [value[0]] * len(value)}
            yield {**valid, key: [value[0], *(value[0] + 1e-3 for _ in value[1:])]}
            yield {**valid, key: [0, *value[1:]]}
            yield {**valid, key: [number + 5 for number in value]}


def stretch_of(arguments: Mapping[str, Any]) -> tuple[float, float] | None:
    """Start and end of the stretch that a call asks for, by the names of its arguments; None where it asks for none."""
    starts = [value for key, value in arguments.items() if "start" in key.casefold() and _is_number(value)]
    ends = [value for key, value in arguments.items() if "end" in key.casefold() and _is_number(value)]
    if len(starts) == len(ends) == 1:
        return float(starts[0]), float(ends[0])
    for key, value in arguments.items():
        named = any(word in key.casefold() for word in ("segment", "range", "interval", "window", "span"))
        if named and isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)):
            return float(value[0]), float(value[1])
    return None


def _up_to_the_end(valid: Mapping[str, Any], info: VideoInfo) -> Iterator[dict[str, Any]]:
    """The arguments with one number, or the last of a list, at an end of the video."""
    ends = (0, info.num_frames - 1, info.num_frames, info.duration_seconds, int(info.duration_seconds))
    for key, value in valid.items():
        if _is_number(value):
            yield from ({**valid, key: type(value)(end)} for end in ends)
        elif isinstance(value, list) and value and all(map(_is_number, value)):
            yield from ({**valid, key: [*value[:-1], end]} for end in ends)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def variants(tool: Tool) -> Iterator[Tool]:
    """The tool, and those with another choice in one of its fields: a refusal may belong to one alone."""
    yield tool
    if not is_dataclass(type(tool)):
        return
    declared: Any = tool
    annotations = get_type_hints(type(declared))
    for own in fields(declared):
        if get_origin(annotations[own.name]) is not Literal:
            continue
        for choice in get_args(annotations[own.name]):
            if choice != getattr(declared, own.name):
                try:
                    other: Any = replace(declared, **{own.name: choice})
                except UsageError:
                    continue
                yield other


def raised(probes: Sequence[Probe]) -> dict[str, set[str]]:
    """Codes of refusals and failures by tool."""
    codes: dict[str, set[str]] = {}
    for probe in probes:
        if isinstance(probe.error, CallRejected):
            codes.setdefault(probe.tool, set()).add(str(probe.error.code))
    return codes


def may_be_raised(error: Exception) -> bool:
    """Whether `Tool.plan` may raise it: a refusal, or the failure of a video or a service."""
    return isinstance(error, VideoToolsError) and not isinstance(error, UsageError | SetupError)
