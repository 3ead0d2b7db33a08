"""Blocks in what a model wrote, and native tool calls in the Hermes convention of the Qwen models.

    <think>...</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 12.0, "end_time": 20.5}}</tool_call>
    <think>...</think><answer>...</answer>

A turn may hold several calls. Calls stand outside the thought and win over an answer: what follows a call in the same
turn was written without its result. `parse_calls` is the block parser alone, for methods with a frame of their own.
Parsing takes any text and never raises.

Observations are one `<tool_response>` block per call inside one user message, which is what Qwen's templates make of
consecutive messages of role `tool` (https://qwen.readthedocs.io/en/latest/framework/function_call.html).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_video_tools.core.json_text import load_object
from verl_video_tools.core.types import ParsedTurn, ToolCall
from verl_video_tools.methods.toolkit.calls import malformed_call

_ADVICE = 'write {"name": ..., "arguments": {...}} between the tags'
_TAG = re.compile(r"</?(?:think|tool_call|answer)>")


@dataclass(frozen=True, slots=True)
class Block:
    """One closed block. `inner` is the text between the tags; `start` and `end` are the positions of the block with its
    tags."""

    inner: str
    start: int
    end: int


def find_blocks(text: str, tag: str) -> list[Block]:
    """Every closed `<tag>…</tag>` block from left to right.

    A block runs from an opening tag to the nearest closing tag after it, so blocks do not nest.
    """
    return find_between(text, f"<{tag}>", f"</{tag}>")


def find_between(text: str, opening: str, closing: str) -> list[Block]:
    """Every block from an `opening` to the nearest `closing` after it, from left to right without overlap.

    A regular expression would find the same blocks, but would take quadratic time on a policy that repeats an opening
    tag without end.
    """
    blocks: list[Block] = []
    position = 0
    while (start := text.find(opening, position)) >= 0:
        stop = text.find(closing, start + len(opening))
        if stop < 0:
            break
        position = stop + len(closing)
        blocks.append(Block(text[start + len(opening) : stop], start, position))
    return blocks


def first_text(blocks: Sequence[Block]) -> str | None:
    """The content of the first block, stripped; None if there is no block."""
    return blocks[0].inner.strip() if blocks else None


def last_text(blocks: Sequence[Block]) -> str | None:
    """The content of the last block, stripped; None if there is no block."""
    return blocks[-1].inner.strip() if blocks else None


def tag_pairs(*names: str) -> list[str]:
    """Opening and closing tag of each name, in order."""
    return [f"<{slash}{name}>" for name in names for slash in ("", "/")]


def without_blocks(text: str, blocks: Sequence[Block]) -> str:
    """`text` with each block replaced by a space, so that the texts around a block cannot form a tag.

    Args:
        blocks: from left to right, without overlap.
    """
    parts, position = [], 0
    for block in blocks:
        parts.append(text[position : block.start])
        position = block.end
    return " ".join([*parts, text[position:]])


# ---------------------------------------------------------------------------------------------------- native tool calls


def parse_calls(text: str, *, takes_parameters: bool = True) -> tuple[ToolCall, ...]:
    """Every closed `<tool_call>` block of `text`, in order. A call that cannot be read has the error `malformed_call`.

    Args:
        takes_parameters: read `parameters` as `arguments`, because some models write it. If a call has both,
            `parameters` counts.
    """
    return tuple(read_call(block.inner, takes_parameters) for block in find_blocks(text, "tool_call"))


def read_call(text: str, takes_parameters: bool = True) -> ToolCall:
    """A call from the text between its tags. A call that cannot be read has the error `malformed_call`.

    Args:
        takes_parameters: as in `parse_calls`.
    """
    try:
        raw = load_object(text)
    except ValueError as error:
        return malformed_call(text, f"the call is not a JSON object ({error})", _ADVICE)
    return as_call(raw, text, takes_parameters)


def parse_turn(text: str) -> ParsedTurn:
    """Read one turn: a thought, then calls or an answer.

    The thought is the first `<think>` block. Tags inside thoughts are ignored. If there are several answers, the last
    one counts. `well_formed` is true if the tags of the turn are in order (`tags_in_order`) and all calls can be read.
    """
    thoughts = find_blocks(text, "think")
    outside = without_blocks(text, thoughts)
    calls = parse_calls(outside)
    answers = [] if calls else find_blocks(outside, "answer")
    well_formed = tags_in_order(text) and all(call.error is None for call in calls)
    return ParsedTurn(
        thought=first_text(thoughts),
        calls=calls,
        answer=last_text(answers),
        well_formed=well_formed and bool(calls or answers),
    )


def tags_in_order(text: str) -> bool:
    """Whether a turn is one thought, then calls or one answer, by its tags alone.

    The turn starts with `<think>`, every tag is closed, and a turn with an answer ends with `</answer>`. Words between
    the blocks are allowed, and so is a tag that a thought only mentions.
    """
    text = text.strip()
    thought = next(iter(find_blocks(text, "think")), None)
    if thought is None or thought.start > 0 or _TAG.search(thought.inner):
        return False
    tags = _TAG.findall(text[thought.end :])
    if tags == tag_pairs("answer"):
        return text.endswith("</answer>")
    return bool(tags) and tags == tag_pairs("tool_call") * (len(tags) // 2)


def has_words_outside(text: str) -> bool:
    """Whether a turn has anything but white space outside of its thought, call and answer blocks."""
    for tag in ("think", "tool_call", "answer"):
        text = without_blocks(text, find_blocks(text, tag))
    return bool(text.strip())


def tool_schema(
    name: str, description: str, parameters: Mapping[str, tuple[str, str]], optional: Collection[str] = ()
) -> dict[str, Any]:
    """The description of a tool in the form that chat templates and OpenAI-compatible servers use.

    Args:
        parameters: JSON type and description of each parameter.
        optional: parameters that a call may leave out.
    """
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind, "description": text} for key, (kind, text) in parameters.items()},
                "required": [key for key in parameters if key not in optional],
            },
        },
    }


_TOOLS_SECTION = """# Tools

These tools can be called:
<tools>
{schemas}
</tools>

A call is a JSON object with name and arguments between <tool_call> and </tool_call>:
<tool_call>
{"name": "NAME", "arguments": {"PARAMETER": VALUE}}
</tool_call>
What it returns comes between <tool_response> and </tool_response>; never write that yourself."""
"""`config/chat_templates/hermes_tools.jinja` renders the same text for servers that are given `tools`."""


def tools_section(schemas: Sequence[Mapping[str, Any]], text: str | None = None) -> str:
    """The part of a system message that lists the tools and says how to call them.

    Args:
        text: text with `{schemas}` in the place of the list. None: our own text.
    """
    listed = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
    return (text or _TOOLS_SECTION).replace("{schemas}", listed)


def section_of_template(template: str) -> str | None:
    """The text that a chat template writes after the system message if it is given `tools`, for `tools_section`.

    None if the template writes nothing there, asks for calls in another form than `parse_calls` reads, or refuses
    system messages or tools.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{"role": "system", "content": "SYSTEM"}, {"role": "user", "content": "USER"}]
    tool = tool_schema("NAME", "DESCRIPTION", {})
    try:
        rendered = [
            render_jinja_template([messages], tools=tools, chat_template=template)[0][0] for tools in (None, [tool])
        ]
    except Exception:  # a template is a program of its author's
        return None
    before, system, after = rendered[0].partition("SYSTEM")
    section = rendered[1].removeprefix(before + system).removesuffix(after).strip("\n")
    listed = json.dumps(tool, ensure_ascii=False)
    is_behind = rendered[1] == f"{before}{system}\n\n{section}{after}"
    asks_for_ours = all(part in section for part in ('"arguments"', *tag_pairs("tool_call")))
    return section.replace(listed, "{schemas}") if is_behind and asks_for_ours and section.count(listed) == 1 else None


def as_call(raw: Mapping[str, Any], text: str, takes_parameters: bool = True) -> ToolCall:
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        return malformed_call(text, f"the call has no name, got {name!r:.80}", _ADVICE)
    arguments = (raw.get("parameters") if takes_parameters else None) or raw.get("arguments", {})
    if not isinstance(arguments, dict):
        return malformed_call(text, f"arguments must be a JSON object, got {arguments!r:.80}", _ADVICE, name)
    return ToolCall(name, arguments)
