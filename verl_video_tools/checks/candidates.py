"""Texts that may be turns of a method: its author's, its oracle's, its prompt's examples, and guesses from its tools.

Nobody says what a method's grammar is, so what is found here is only tried; `examples` keeps what works.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pkgutil import resolve_name
from typing import Any

from verl_video_tools.core.types import Message, Method, Tool, ToolDescription, VideoInfo, content_text
from verl_video_tools.synthetic.questions import Question
from verl_video_tools.synthetic.world import VideoSpec

_BLOCK = re.compile(r"<(\w+)>[^<]{1,400}</\1>")
_DOCUMENTED_ARGUMENT = re.compile(r'"(\w+)"\??: ?(\[?\w+)')
_ANSWERS = ("<answer>B</answer>", "\\boxed{B}", "Answer: B", "B")
_TEXT, _CLOCK = "a red circle", "0:10"
_MAX_CHOICES = 10
"""Choices of parameters that a call need not have."""
_WHOLE = (1.0, 1000.0, 56.0)
"""Sides of a frame: as shares, as thousandths, and in pixels of the world's video."""


def author_turns(method: Method) -> tuple[str, ...]:
    """The attribute `check_examples`: turns that call or answer, each as a policy would write it."""
    given = getattr(method, "check_examples", ())
    return (given,) if isinstance(given, str) else tuple(given)


def oracle_script(method: Method, spec: VideoSpec, question: Question) -> list[str] | None:
    """The turns of the method's oracle for a question; None where there is none, or it has nothing to say."""
    if method.oracle is None:
        return None
    try:
        return list(resolve_name(method.oracle)(method=method).script(spec, question).turns)
    except Exception:  # it may be another class's, or know no such video; `python_paths_resolve` looks at the path
        return None


def guessed_answers(method: Method, prompt: Sequence[Message]) -> Iterator[str]:
    """Turns that may answer."""
    mined = [block for block in _blocks(prompt) if "answer" in block.casefold()]
    for body in (*mined, *_ANSWERS):
        yield from _with_thought(method, body)


def guessed_calls(method: Method, info: VideoInfo, prompt: Sequence[Message]) -> Iterator[str]:
    """Turns that may call a tool: blocks between tags in the prompt, then the tools' arguments in usual forms."""
    for body in _blocks(prompt):
        yield from _with_thought(method, body)
    for name, tool in method.tools(info).items():
        choices = _parameters(method, name, tool)
        for arguments in (each for chosen in choices for each in _guessed_arguments(chosen, info)):
            yield from _written(method, name, arguments)
            call = json.dumps({"name": name, "arguments": arguments})
            values = ", ".join(json.dumps(value) for value in arguments.values())
            for body in (
                f"<tool_call>{call}</tool_call>",
                f"<{name}>{json.dumps(arguments)}</{name}>",
                f"<tool_call>{name}({values})</tool_call>",
                call,
            ):
                yield from _with_thought(method, body)


def _written(method: Method, name: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """The call as the method itself writes it, where it has a `write_call(thought, name, arguments)`."""
    write = getattr(method, "write_call", None)
    if write is None:
        return
    try:
        yield str(write("so", name, arguments))
    except Exception:  # it is only tried; a grammar need not have words for every argument
        return


def _blocks(prompt: Sequence[Message]) -> list[str]:
    texts = [content_text(message.content) for message in prompt]
    return list(dict.fromkeys(match[0] for text in texts for match in _BLOCK.finditer(text)))


def _with_thought(method: Method, body: str) -> Iterator[str]:
    yield f"<{method.thought_tag}>so</{method.thought_tag}>{body}" if method.thought_tag else body


def _parameters(method: Method, name: str, tool: Tool) -> list[Mapping[str, str]]:
    """JSON types of parameters that a call may give, by name, from the tool's description or the docstring of its
    `plan`: those that it needs, then with one or two of the others, of which a call may have to choose."""
    description = description_of(method, name, tool)
    if description is None:
        return [documented_arguments(tool)]
    kinds = {key: kind for key, (kind, _) in description.parameters.items()}
    optional = [key for key in kinds if key in description.optional]
    chosen = [*((key,) for key in optional), *combinations(optional, 2)][:_MAX_CHOICES]
    return [{key: kinds[key] for key in kinds if key not in optional or key in own} for own in ((), *chosen)]


def description_of(method: Method, name: str, tool: Tool) -> ToolDescription | None:
    """How the method describes a tool, or the tool itself; None where neither does."""
    for description in (*method.tool_descriptions, getattr(tool, "description", None)):
        if isinstance(description, ToolDescription) and description.name == name:
            return description
    return None


def documented_arguments(tool: Tool) -> dict[str, str]:
    """Arguments that the docstring of a tool's `plan` names, such as ``{"time": seconds}``, and what they hold."""
    return dict(_DOCUMENTED_ARGUMENT.findall(inspect.getdoc(type(tool).plan) or ""))


def guessed_places(tool: Tool) -> Iterator[tuple[str, Any]]:
    """Arguments that are a place in the frame, such as a box, by what the docstring of `plan` names."""
    for name, kind in documented_arguments(tool).items():
        if _is_place(name):
            yield from ((name, _guessed(name.casefold(), kind, 0, 0, whole)) for whole in _WHOLE)


def _guessed_arguments(parameters: Mapping[str, str], info: VideoInfo) -> Iterator[dict[str, Any]]:
    for unit in (1.0, info.average_fps):  # a part of 20 seconds, in seconds and in frames
        length = info.duration_seconds * unit
        start, end = round(0.2 * length), round(0.2 * length + 20 * unit)
        for whole in _WHOLE if any(_is_place(name) for name in parameters) else (1.0,):
            yield {name: _guessed(name.casefold(), kind, start, end, whole) for name, kind in parameters.items()}


def _is_place(name: str) -> bool:
    return any(word in name.casefold() for word in ("box", "region", "crop_area", "point"))


def _guessed(name: str, kind: str, start: int, end: int, whole: float) -> Any:
    if _is_place(name):  # the middle of the frame
        corners = (0.5, 0.5) if "point" in name else (0.25, 0.25, 0.75, 0.75)
        return [corner * whole if whole == 1.0 else round(corner * whole) for corner in corners]
    if kind.startswith(("array", "[")):
        return [start, end]
    if kind.startswith("str"):
        return _CLOCK if "time" in name else _TEXT
    if "fps" in name or "rate" in name or "count" in name or name.startswith("num"):
        return 1
    return end if "end" in name or "stop" in name else start
